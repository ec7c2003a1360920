//! Probes on a library's entry points, by file offset: one link for all offsets of a class where the kernel has
//! such links (6.6), else one each.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{ProbeKind, ProgramError, UProbe};
use tracer_ebpf::wire::cuda::cookie;

use super::copies::{Copies, Copy};
use super::cuda::pristine::Site;
use super::cuda::{EntryPoint, Layer};
use super::decode_cuda::family_position;
use super::probed;
use super::raw::{self, FdInfo, MultiTarget};
use super::undo::Detaching;

/// How many offsets a link takes, and how a program learns which of them it was run at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One link for many offsets, each with a cookie (6.6).
    Many,
    /// A link each, with a cookie (5.15).
    Single,
    /// A link each, and a program each that holds the cookie as a constant.
    Constant,
}

/// What is to be attached where.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    pub library: &'a Path,
    pub points: &'a [EntryPoint],
    /// Returns are probed where they are wanted.
    pub returns: bool,
}

/// An entry point that could not be attached, and why.
pub type Refused = (&'static str, String);

/// The attached entry points. Dropping it detaches them.
#[derive(Debug)]
pub struct Uprobes {
    copies: Copies,
    /// What the kernel can, once asked.
    way: Option<Way>,
    /// The best that may be used.
    best: Way,
    programs: HashMap<(&'static str, Layer), Copy>,
    links: Vec<Link>,
    /// Every place that ever had a probe.
    sites: HashMap<PathBuf, Site>,
    /// Ids of copies that have gone with their links.
    past: Vec<u32>,
}

#[derive(Debug)]
struct Link {
    library: PathBuf,
    layer: Layer,
    held: Held,
    offsets: Vec<u64>,
}

#[derive(Debug)]
pub(super) enum Held {
    Many(#[expect(dead_code, reason = "closing it detaches")] OwnedFd),
    /// With its program, where that is its own.
    Single(#[expect(dead_code, reason = "dropping it detaches")] UProbeLink, Option<Copy>),
}

/// One offset, with what its programs are told there.
#[derive(Clone, Copy, Debug)]
struct Spot {
    name: &'static str,
    offset: u64,
    cookie: u64,
}

/// Runs of the programs so far; counted only while the kernel keeps statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    pub entries: u64,
    pub returns: u64,
    /// Time inside the programs.
    pub ns: u64,
}

impl Runs {
    /// What came since.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            entries: self.entries.saturating_sub(before.entries),
            returns: self.returns.saturating_sub(before.returns),
            ns: self.ns.saturating_sub(before.ns),
        }
    }
}

impl Uprobes {
    pub(super) fn new(copies: Copies, best: Way) -> Self {
        Self {
            copies,
            way: None,
            best,
            programs: HashMap::new(),
            links: Vec::new(),
            sites: HashMap::new(),
            past: Vec::new(),
        }
    }

    /// What this kernel can, tried on a function of our own.
    pub fn way(&mut self) -> Way {
        if let Some(way) = self.way {
            return way;
        }
        let way = match self.best {
            Way::Many => self.try_many().map_or_else(
                |reason| {
                    tracing::info!("one link for each driver function: {reason}");
                    Way::Single
                },
                |()| Way::Many,
            ),
            other => other,
        };
        *self.way.insert(way)
    }

    fn try_many(&mut self) -> Result<(), String> {
        let (path, offset) = probed::place().map_err(|e| e.to_string())?;
        let program = self.program("cuda_submit", Layer::Rare, true)?;
        let target = MultiTarget { path: &path, offsets: &[offset], cookies: &[0], returns: false };
        raw::link_uprobes(program.program.as_fd(), target).map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Loads what [`Self::attach`] will need, over which the kernel's verifier takes a second. What it refuses is
    /// said when it is to be attached.
    pub fn load(&mut self) {
        let many = match self.way() {
            Way::Many => true,
            Way::Single => false,
            // Those are made for one entry point each.
            Way::Constant => return,
        };
        for layer in Layer::ALL {
            for name in ["cuda_return", "cuda_enter", "cuda_submit"] {
                if let Err(reason) = self.program(name, layer, many) {
                    tracing::debug!("{name}: {reason}");
                }
            }
        }
    }

    /// Attaches the programs that each entry point needs, in all processes that map the library.
    /// Gives those that the kernel refused.
    pub fn attach(&mut self, wanted: Attach) -> Vec<Refused> {
        let mut refused = Vec::new();
        if let Err(e) = self.note(wanted.library, wanted.points) {
            return wanted.points.iter().map(|p| (p.name, e.to_string())).collect();
        }
        for layer in Layer::ALL {
            for wants_return in [true, false] {
                let mut spots: Vec<_> = wanted
                    .points
                    .iter()
                    .filter(|p| Layer::of(p.family) == layer && p.wants_return == wants_return)
                    .map(|p| spot(p, wanted.returns))
                    .collect();
                if wants_return && wanted.returns {
                    // Before the entries, lest an entry wait for a return that is not seen.
                    self.put("cuda_return", layer, wanted.library, &mut spots, &mut refused);
                }
                let entry = if wants_return { "cuda_enter" } else { "cuda_submit" };
                self.put(entry, layer, wanted.library, &mut spots, &mut refused);
            }
        }
        refused
    }

    fn note(&mut self, library: &Path, points: &[EntryPoint]) -> std::io::Result<()> {
        let offsets = points.iter().map(|p| p.file_offset);
        match self.sites.get_mut(library) {
            Some(site) => site.add(offsets),
            None => drop(self.sites.insert(library.to_owned(), Site::new(library, offsets)?)),
        }
        Ok(())
    }

    /// Attaches one program, and takes the spots out where it could not be.
    fn put(
        &mut self,
        program: &'static str,
        layer: Layer,
        library: &Path,
        spots: &mut Vec<Spot>,
        refused: &mut Vec<Refused>,
    ) {
        if spots.is_empty() {
            return;
        }
        let before = refused.len();
        match self.way() {
            Way::Many => self.put_many(program, layer, library, spots, refused),
            way => {
                for at in spots.iter() {
                    match self.put_one(way, program, layer, library, *at) {
                        Ok(held) => self.links.push(link(library, layer, held, vec![at.offset])),
                        Err(reason) => refused.push((at.name, reason)),
                    }
                }
            }
        }
        spots.retain(|s| !refused[before..].iter().any(|(name, _)| *name == s.name));
    }

    /// One probe outside of the list, for [`super::trap`].
    pub(super) fn link_one(
        &mut self,
        program: &'static str,
        layer: Layer,
        file: &Path,
        offset: u64,
    ) -> Result<Held, String> {
        let at = Spot { name: "", offset, cookie: 0 };
        match self.way() {
            Way::Many => {
                let copy = self.program(program, layer, true)?;
                let (offsets, cookies, returns) = (&[offset][..], &[0][..], copy.returns);
                let target = MultiTarget { path: file, offsets, cookies, returns };
                let link = raw::link_uprobes(copy.program.as_fd(), target).map_err(|e| e.to_string())?;
                Ok(Held::Many(link))
            }
            Way::Single => self.put_one(Way::Single, program, layer, file, at),
            Way::Constant => {
                // Shared, so that its runs are counted.
                let copy = self.program(program, layer, false)?;
                let location = UProbeAttachLocation::AbsoluteOffset(offset);
                let at = UProbeAttachPoint { location, cookie: None };
                Ok(Held::Single(attach_aya(copy, at, file)?, None))
            }
        }
    }

    /// One offset that the kernel refuses would take all others of its link with it, so halves are tried.
    fn put_many(
        &mut self,
        program: &'static str,
        layer: Layer,
        library: &Path,
        spots: &[Spot],
        refused: &mut Vec<Refused>,
    ) {
        let offsets: Vec<_> = spots.iter().map(|s| s.offset).collect();
        let cookies: Vec<_> = spots.iter().map(|s| s.cookie).collect();
        let linked = self.program(program, layer, true).and_then(|copy| {
            let (offsets, cookies, returns) = (&offsets[..], &cookies[..], copy.returns);
            let target = MultiTarget { path: library, offsets, cookies, returns };
            raw::link_uprobes(copy.program.as_fd(), target).map_err(|e| e.to_string())
        });
        match linked {
            Ok(fd) => self.links.push(link(library, layer, Held::Many(fd), offsets)),
            Err(reason) if spots.len() < 2 => refused.extend(spots.iter().map(|s| (s.name, reason.clone()))),
            Err(_) => {
                let (one, two) = spots.split_at(spots.len() / 2);
                self.put_many(program, layer, library, one, refused);
                self.put_many(program, layer, library, two, refused);
            }
        }
    }

    fn put_one(
        &mut self,
        way: Way,
        program: &'static str,
        layer: Layer,
        library: &Path,
        at: Spot,
    ) -> Result<Held, String> {
        let location = UProbeAttachLocation::AbsoluteOffset(at.offset);
        if way == Way::Constant {
            let copy = self.copies.load_with_cookie(program, at.cookie)?;
            let link = attach_aya(&copy, UProbeAttachPoint { location, cookie: None }, library)?;
            return Ok(Held::Single(link, Some(copy)));
        }
        let copy = self.program(program, layer, false)?;
        let at = UProbeAttachPoint { location, cookie: Some(at.cookie) };
        Ok(Held::Single(attach_aya(copy, at, library)?, None))
    }

    /// The copy of a class, loaded when it is first needed.
    fn program(&mut self, name: &'static str, layer: Layer, many: bool) -> Result<&Copy, String> {
        use std::collections::hash_map::Entry;
        match self.programs.entry((name, layer)) {
            Entry::Occupied(loaded) => Ok(loaded.into_mut()),
            Entry::Vacant(room) => Ok(room.insert(self.copies.load(name, many)?)),
        }
    }

    /// Detaches some while the caller goes on.
    #[must_use]
    pub fn detach(&mut self, which: impl Fn(&Path, Layer) -> bool) -> Detaching {
        let (gone, kept) = self.links.drain(..).partition(|l| which(&l.library, l.layer));
        self.links = kept;
        let gone: Vec<Link> = gone;
        let own = gone
            .iter()
            .filter_map(|l| if let Held::Single(_, copy) = &l.held { copy.as_ref() } else { None });
        self.past.extend(own.filter_map(|copy| raw::fd_info(&copy.program)?.program));
        // Entries before returns, lest an entry wait for a return that is not seen.
        Detaching::new(gone.into_iter().rev().map(|l| l.held).collect())
    }

    /// Detaches all. What is returned knows what must be gone.
    #[must_use]
    pub fn detach_all(&mut self) -> Detaching {
        let programs: Vec<_> = self.infos().into_iter().filter_map(|(_, info)| info.program).collect();
        let mut detaching = self.detach(|_, _| true);
        detaching.expect_gone(programs, self.sites.drain().map(|(_, site)| site).collect());
        detaching.expect_gone(self.past.drain(..), Vec::new());
        self.programs.clear();
        detaching
    }

    /// Probes of one layer in place on a library.
    #[must_use]
    pub fn attached(&self, library: &Path, layer: Layer) -> usize {
        let here = self.links.iter().filter(|l| l.library == library && l.layer == layer);
        here.map(|l| l.offsets.len()).sum()
    }

    /// Runs of one layer's programs so far.
    #[must_use]
    pub fn runs(&self, layer: Layer) -> Runs {
        let shared = self.programs.iter().filter(|((_, l), _)| *l == layer).map(|(_, copy)| copy);
        let own = self.links.iter().filter(|l| l.layer == layer).filter_map(|l| match &l.held {
            Held::Single(_, copy) => copy.as_ref(),
            Held::Many(_) => None,
        });
        let mut runs = Runs::default();
        for copy in shared.chain(own) {
            let info = raw::fd_info(&copy.program).unwrap_or_default();
            runs.ns += info.run_ns;
            *if copy.returns { &mut runs.returns } else { &mut runs.entries } += info.runs;
        }
        runs
    }

    /// The loaded copies, by the name of their program.
    pub(super) fn copies(&self) -> impl Iterator<Item = (&'static str, BorrowedFd<'_>)> {
        let shared = self.programs.iter().map(|((name, _), copy)| (*name, copy.program.as_fd()));
        let own = self.links.iter().filter_map(|l| match &l.held {
            Held::Single(_, Some(copy)) => Some(("cuda_constant", copy.program.as_fd())),
            _ => None,
        });
        shared.chain(own)
    }

    /// What the kernel says of each copy.
    pub(super) fn infos(&self) -> Vec<(&'static str, FdInfo)> {
        self.copies().filter_map(|(name, fd)| Some((name, raw::fd_info(fd)?))).collect()
    }
}

fn spot(point: &EntryPoint, returns: bool) -> Spot {
    let without = if point.wants_return && !returns { cookie::NO_RETURN } else { 0 };
    let family = u64::from(family_position(point.family)) << cookie::FAMILY_SHIFT;
    Spot { name: point.name, offset: point.file_offset, cookie: without | family | u64::from(point.id) }
}

fn link(library: &Path, layer: Layer, held: Held, offsets: Vec<u64>) -> Link {
    Link { library: library.to_owned(), layer, held, offsets }
}

/// Attaches a copy by aya, which takes it by its id.
fn attach_aya(copy: &Copy, at: UProbeAttachPoint, library: &Path) -> Result<UProbeLink, String> {
    let id = raw::fd_info(&copy.program).and_then(|info| info.program).ok_or("a program without an id")?;
    let info = aya::programs::loaded_programs()
        .find_map(|info| info.ok().filter(|info| info.id() == id))
        .ok_or("a loaded program is not there")?;
    let kind = if copy.returns { ProbeKind::Return } else { ProbeKind::Entry };
    let text = |e: ProgramError| e.to_string();
    // SAFETY: a uprobe program of the object, loaded as such.
    let mut probe = unsafe { UProbe::from_program_info(info, "cuda".into(), kind) }.map_err(text)?;
    let id = probe.attach(at, library, UProbeScope::AllProcesses).map_err(text)?;
    probe.take_link(id).map_err(text)
}
