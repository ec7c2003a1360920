//! `--from` and `--to`: a part of a recording, by offsets from its start.

use std::time::Duration;

use super::error::CliError;
use crate::trace::Span;

/// What was asked for, before the recording's length is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    from: Option<Duration>,
    to: Option<Duration>,
}

impl Range {
    /// # Errors
    /// Not a time, or an end that does not come after the start.
    pub fn parse(from: Option<&str>, to: Option<&str>) -> Result<Self, CliError> {
        let range = Self { from: offset("--from", from)?, to: offset("--to", to)? };
        match (range.from.unwrap_or_default(), range.to) {
            (from, Some(to)) if from >= to => Err(CliError::BadRange(format!(
                "--to {} does not come after --from {}: both count from the start of the recording",
                humantime::format_duration(to),
                humantime::format_duration(from)
            ))),
            _ => Ok(range),
        }
    }

    /// The part of a recording, `None` where no part was asked for.
    ///
    /// # Errors
    /// It begins after the recording's end.
    pub fn within(self, recording: Span) -> Result<Option<Span>, CliError> {
        if self == Self::default() {
            return Ok(None);
        }
        let at = |offset: Duration| {
            recording.start.saturating_add(u64::try_from(offset.as_nanos()).unwrap_or(u64::MAX))
        };
        let asked = Span::new(self.from.map_or(recording.start, at), self.to.map_or(recording.end, at));
        asked.intersect(recording).map(Some).ok_or_else(|| {
            CliError::BadRange(format!(
                "--from lies after the end of the recording, which lasts {}",
                humantime::format_duration(Duration::from_millis(recording.len() / 1_000_000))
            ))
        })
    }
}

fn offset(option: &str, text: Option<&str>) -> Result<Option<Duration>, CliError> {
    let Some(text) = text else { return Ok(None) };
    let bad = |why: String| {
        CliError::BadRange(format!(
            "{option} {text}: {why}; give an offset from the start such as 10s or 1m30s"
        ))
    };
    humantime::parse_duration(text).map(Some).map_err(|e| bad(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const RECORDING: Span = Span { start: 5 * SECOND, end: 35 * SECOND };

    fn within(from: Option<&str>, to: Option<&str>) -> Result<Option<Span>, CliError> {
        Range::parse(from, to)?.within(RECORDING)
    }

    #[test]
    fn offsets_count_from_the_start_and_are_clipped_to_the_recording() {
        assert_eq!(within(None, None).unwrap(), None);
        assert_eq!(within(Some("10s"), None).unwrap(), Some(Span::new(15 * SECOND, 35 * SECOND)));
        assert_eq!(
            within(None, Some("500ms")).unwrap(),
            Some(Span::new(5 * SECOND, 5 * SECOND + SECOND / 2))
        );
        assert_eq!(within(Some("0s"), Some("10years")).unwrap(), Some(RECORDING));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        for (from, to, why) in [
            (Some("x"), None, "--from x"),
            (None, Some("-3s"), "--to -3s"),
            (None, Some(""), "--to"),
            (Some("10s"), Some("10s"), "does not come after"),
            (None, Some("0s"), "does not come after"),
            (Some("31s"), None, "after the end of the recording, which lasts 30s"),
            (Some("99999999999999999999y"), None, "--from"),
        ] {
            let error = within(from, to).unwrap_err().to_string();
            assert!(error.contains(why), "{from:?} {to:?}: {error}");
        }
    }
}
