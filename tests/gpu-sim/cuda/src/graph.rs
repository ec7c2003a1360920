//! Graphs: made node by node or by stream capture, then run as one submit, their nodes one after another.

use gpu_sim_timeline::Work;
use libc::{c_char, c_int, c_uint, c_ulonglong};

use crate::abi::{Code, CuResult, KernelNodeParams, NullStream, answer, give};
use crate::driver::Driver;
use crate::queue::{Item, submit};

#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    nodes: Vec<Item>,
}

impl Graph {
    /// Only work can be captured: no collectives, and marks are done at once.
    pub(crate) fn push(&mut self, item: Item) -> Result<(), Code> {
        match item {
            Item::Work { .. } | Item::Stall { .. } => self.nodes.push(item),
            Item::Mark(mark) => {
                mark.set(0).ok();
            }
            Item::After(_) => {}
            Item::Collective { .. } => return Err(Code::NOT_SUPPORTED),
        }
        Ok(())
    }
}

fn keep(graph: *mut usize, made: Graph) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    let handle = objects.handle();
    objects.graphs.insert(handle, made);
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(graph, handle) }
}

fn instantiate(exec: *mut usize, graph: usize) -> Result<(), Code> {
    let mut objects = Driver::get()?.objects();
    let made = objects.graphs.get(&graph).cloned().ok_or(Code::INVALID_HANDLE)?;
    let handle = objects.handle();
    objects.graph_execs.insert(handle, made);
    // SAFETY: the caller's pointer, as the API demands it.
    unsafe { give(exec, handle) }
}

fn launch(exec: usize, stream: usize, null: NullStream) -> Result<(), Code> {
    let graph = Driver::get()?.objects().graph_execs.get(&exec).cloned().ok_or(Code::INVALID_HANDLE)?;
    for item in graph.nodes {
        submit(stream, null, item)?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphCreate(graph: *mut usize, _: c_uint) -> CuResult {
    answer(|| keep(graph, Graph::default()))
}

/// Dependencies are not looked at: nodes run in the order they were added.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphAddKernelNode_v2(
    node: *mut usize,
    graph: usize,
    _dependencies: *const usize,
    _count: usize,
    params: *const KernelNodeParams,
) -> CuResult {
    answer(|| {
        // SAFETY: the caller's pointer, as the API demands it.
        let params = unsafe { params.as_ref() }.ok_or(Code::INVALID_VALUE)?;
        let mut objects = Driver::get()?.objects();
        let function = objects.functions.get(&params.func).copied().ok_or(Code::INVALID_HANDLE)?;
        let handle = objects.handle();
        let graph = objects.graphs.get_mut(&graph).ok_or(Code::INVALID_HANDLE)?;
        graph.push(Item::Work { work: Work::Kernel, ns: function.duration(params.grid[0]) })?;
        // SAFETY: the caller's pointer, as the API demands it.
        unsafe { give(node, handle) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: usize, _mode: c_int) -> CuResult {
    answer(|| {
        let mut objects = Driver::get()?.objects();
        let stream = objects.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?;
        stream.capture = Some(Graph::default());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: usize, graph: *mut usize) -> CuResult {
    answer(|| {
        let mut objects = Driver::get()?.objects();
        let stream = objects.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?;
        let captured = stream.capture.take().ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
        drop(objects);
        keep(graph, captured)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    exec: *mut usize,
    graph: usize,
    _: c_ulonglong,
) -> CuResult {
    answer(|| instantiate(exec, graph))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiate_v2(
    exec: *mut usize,
    graph: usize,
    _error_node: *mut usize,
    _log: *mut c_char,
    _log_bytes: usize,
) -> CuResult {
    answer(|| instantiate(exec, graph))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: usize, stream: usize) -> CuResult {
    answer(|| launch(exec, stream, NullStream::Legacy))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch_ptsz(exec: usize, stream: usize) -> CuResult {
    answer(|| launch(exec, stream, NullStream::PerThread))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: usize) -> CuResult {
    answer(|| Driver::get()?.objects().graphs.remove(&graph).map(drop).ok_or(Code::INVALID_HANDLE))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: usize) -> CuResult {
    answer(|| Driver::get()?.objects().graph_execs.remove(&exec).map(drop).ok_or(Code::INVALID_HANDLE))
}
