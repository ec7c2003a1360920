//! Which driver calls are kept when watching them all turns out dear.

use crate::trace::CudaFamily;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Few a step, and they say most: synchronise, graph launch, copy, allocate, free, load.
    Rare,
    /// Up to tens of thousands a second: launches, memsets, queries, and what goes with them.
    Frequent,
}

impl Layer {
    pub const ALL: [Self; 2] = [Self::Rare, Self::Frequent];

    #[must_use]
    pub const fn of(family: CudaFamily) -> Self {
        match family {
            CudaFamily::GraphLaunch
            | CudaFamily::Copy
            | CudaFamily::Synchronize
            | CudaFamily::Allocate
            | CudaFamily::Free
            | CudaFamily::HostAllocate
            | CudaFamily::Load
            | CudaFamily::Collective => Self::Rare,
            CudaFamily::Launch
            | CudaFamily::Memset
            | CudaFamily::EventQuery
            | CudaFamily::SetContext
            | CudaFamily::EventRecord => Self::Frequent,
        }
    }
}
