//! What handles stand for. A handle is a number, never an address: a stale one is an error, not a crash.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use libc::c_uint;

use crate::abi::{Code, NullStream};
use crate::graph::Graph;
use crate::module::Function;
use crate::queue::{Mark, Pending};
use crate::stream::Stream;
use crate::wait::Waiter;

#[derive(Debug)]
pub(crate) struct Context {
    /// NVML index.
    pub(crate) device: u32,
    pub(crate) flags: c_uint,
    /// The legacy default stream.
    pub(crate) null_stream: usize,
    /// When the work of streams that were destroyed is done.
    pub(crate) orphaned: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Primary {
    pub(crate) context: usize,
    pub(crate) retained: usize,
}

#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) bytes: usize,
    pub(crate) device: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    last_handle: usize,
    pub(crate) contexts: HashMap<usize, Context>,
    /// By CUDA ordinal.
    pub(crate) primaries: HashMap<usize, Primary>,
    pub(crate) primary_flags: HashMap<usize, c_uint>,
    pub(crate) streams: HashMap<usize, Stream>,
    /// When the work recorded before it is done, once recorded.
    pub(crate) events: HashMap<usize, Option<Mark>>,
    /// What has no time yet, in the order of submission.
    pub(crate) pending: Vec<Pending>,
    pub(crate) waiters: Vec<Waiter>,
    /// Handle to context.
    pub(crate) modules: HashMap<usize, usize>,
    pub(crate) functions: HashMap<usize, Function>,
    pub(crate) graphs: HashMap<usize, Graph>,
    pub(crate) graph_execs: HashMap<usize, Graph>,
    pub(crate) device_memory: BTreeMap<usize, Block>,
    /// Pinned host memory, address to bytes.
    pub(crate) host_memory: BTreeMap<usize, usize>,
    /// The caller's own memory, pinned by registration.
    pub(crate) registered: BTreeMap<usize, usize>,
}

thread_local! {
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static OWN_STREAMS: RefCell<HashMap<usize, usize>> = RefCell::new(HashMap::new());
}

/// Runs `with` on the calling thread's stack of contexts.
pub(crate) fn context_stack<T>(with: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    CONTEXTS.with_borrow_mut(with)
}

impl Objects {
    /// A number never given before; above the two reserved stream handles.
    pub(crate) fn handle(&mut self) -> usize {
        self.last_handle += 0x10;
        0x5100_0000_0000 + self.last_handle
    }

    /// The calling thread's current context.
    pub(crate) fn current(&self) -> Result<(usize, &Context), Code> {
        let handle = context_stack(|stack| stack.last().copied()).ok_or(Code::INVALID_CONTEXT)?;
        self.contexts.get(&handle).map(|context| (handle, context)).ok_or(Code::INVALID_CONTEXT)
    }

    /// The stream a caller's handle means: 0 by the entry point's kind, 1 legacy, 2 the thread's own.
    pub(crate) fn stream(&mut self, handle: usize, null: NullStream) -> Result<usize, Code> {
        let per_thread = match handle {
            0 => null == NullStream::PerThread,
            1 => false,
            2 => true,
            _ if self.streams.contains_key(&handle) => return Ok(handle),
            _ => return Err(Code::INVALID_HANDLE),
        };
        let (context, current) = self.current()?;
        if !per_thread {
            return Ok(current.null_stream);
        }
        let own = OWN_STREAMS.with_borrow(|own| own.get(&context).copied());
        if let Some(own) = own.filter(|own| self.streams.contains_key(own)) {
            return Ok(own);
        }
        let own = self.handle();
        self.streams.insert(own, Stream::new(context, true));
        OWN_STREAMS.with_borrow_mut(|streams| streams.insert(context, own));
        Ok(own)
    }
}
