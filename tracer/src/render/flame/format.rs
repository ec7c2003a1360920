//! Forms in which flames are written.

use super::{Difference, Flame, FlameError, pprof, speedscope, svg};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A picture that can be zoomed and searched in a browser.
    Svg,
    /// One line a stack: frames joined by `;`, a space, nanoseconds. Of a difference two figures, the second
    /// side's ahead of the first's, as differential flame graphs are read.
    Folded,
    /// JSON of www.speedscope.app.
    Speedscope,
    /// The gzipped profile of `pprof`.
    Pprof,
}

/// A flame or a difference in the terms that all viewers share.
pub(super) struct Profile<'a> {
    pub(super) title: String,
    pub(super) subtitle: String,
    /// Name and unit of each value of a stack.
    pub(super) values: Vec<(String, &'static str)>,
    pub(super) duration_ns: u64,
    /// Outermost frame first, with its values.
    pub(super) stacks: Vec<(&'a [String], Vec<i64>)>,
}

impl Flame {
    /// # Errors
    /// There is nothing to draw; folded text then is empty instead.
    pub fn write(&self, format: Format) -> Result<Vec<u8>, FlameError> {
        match format {
            Format::Svg => Ok(svg(self)?.into_bytes()),
            Format::Folded => Ok(folded(self).into_bytes()),
            Format::Speedscope => self.drawable().and_then(|()| speedscope::of_flame(self)),
            Format::Pprof => self.drawable().and_then(|()| pprof::encode(&self.profile())),
        }
    }

    fn profile(&self) -> Profile<'_> {
        let stacks = self.stacks.iter().map(|(stack, ns)| (stack.as_slice(), vec![signed(*ns)])).collect();
        Profile {
            title: self.title(),
            subtitle: self.subtitle(),
            values: vec![(self.kind.word().to_owned(), "nanoseconds")],
            duration_ns: self.window_ns,
            stacks,
        }
    }
}

impl Difference {
    /// # Errors
    /// The two do not differ.
    pub fn write(&self, format: Format) -> Result<Vec<u8>, FlameError> {
        match format {
            Format::Folded => Ok(self.folded().into_bytes()),
            Format::Svg => Ok(svg::difference(self)?.into_bytes()),
            Format::Speedscope => self.drawable().and_then(|()| speedscope::of_difference(self)),
            Format::Pprof => self.drawable().and_then(|()| pprof::encode(&self.profile())),
        }
    }

    fn folded(&self) -> String {
        let line = |(stack, rates): (&Vec<String>, &super::difference::Rates)| {
            format!("{} {} {}\n", stack.join(";"), rates.second, rates.first)
        };
        self.stacks.iter().map(line).collect()
    }

    fn profile(&self) -> Profile<'_> {
        let [first, second] = self.sides().map(|side| side.replace(' ', "_"));
        let stacks = self.stacks.iter().map(|(stack, rates)| {
            let difference = i64::try_from(rates.signed());
            let limit = if rates.signed() < 0 { -i64::MAX } else { i64::MAX };
            let values = vec![signed(rates.first), signed(rates.second), difference.unwrap_or(limit)];
            (stack.as_slice(), values)
        });
        Profile {
            title: self.title(),
            subtitle: self.subtitle(),
            // The last is what `pprof` shows unless told otherwise.
            values: [first, second, "difference".to_owned()].map(|name| (name, "nanoseconds")).to_vec(),
            duration_ns: 1_000_000_000,
            stacks: stacks.collect(),
        }
    }
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// One line a stack: frames joined by `;`, a space, nanoseconds. Sorted; empty where nothing is known.
#[must_use]
pub fn folded(flame: &Flame) -> String {
    flame.stacks.iter().map(|(stack, ns)| format!("{} {ns}\n", stack.join(";"))).collect()
}
