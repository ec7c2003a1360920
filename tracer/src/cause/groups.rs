//! Control groups that hold a thread back: one of its own, or one above them.

use super::context::Context;
use super::{Culprit, CulpritKind};
use crate::timeline::Thread;
use crate::trace::CgroupTick;

/// The group itself, then those above it.
fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| p.rsplit_once('/').map(|(above, _)| above))
        .filter(|p| !p.trim_matches('/').is_empty())
}

/// The last tick of each of a thread's groups, and of those above, that fits; the nearest group first.
fn ticks<'t>(
    context: &Context<'t>,
    thread: &'t Thread,
    fits: impl Fn(&CgroupTick) -> bool + Copy + 't,
) -> impl Iterator<Item = &'t CgroupTick> {
    let all = &context.timeline.cgroup_ticks;
    let paths = thread.cgroups.iter().flat_map(|(_, path)| upwards(path));
    paths.filter_map(move |path| all.iter().rev().find(|t| t.path == path && fits(t)))
}

/// Quotas that hold for a thread: whose, and thousandths of a processor.
pub(crate) fn quotas<'t>(context: &Context<'t>, thread: &'t Thread) -> Vec<(&'t str, u64)> {
    let quota = |t: &CgroupTick| t.quota_us?.checked_mul(1000)?.checked_div(t.period_us.filter(|&p| p > 0)?);
    ticks(context, thread, |t| t.quota_us.is_some())
        .filter_map(|t| Some((t.path.as_str(), quota(t)?)))
        .filter(|q| q.1 > 0)
        .collect()
}

/// The group whose quota throttles a thread, with what it may use.
pub(crate) fn throttled(context: &Context<'_>, thread: &Thread) -> Option<Culprit> {
    let limited = |t: &CgroupTick| t.quota_us.is_some();
    let throttled =
        |t: &CgroupTick| t.quota_us.is_some() && since_start(context, t, |t| t.throttled_count) > 0;
    let group = ticks(context, thread, throttled)
        .next()
        .or_else(|| ticks(context, thread, limited).next())
        .or_else(|| only(context, throttled));
    let name = match group {
        Some(tick) => {
            let processors = match (tick.quota_us, tick.period_us) {
                (Some(quota), Some(period)) if period > 0 => {
                    format!(
                        " (quota of {}.{:02} processors)",
                        quota / period,
                        u128::from(quota % period) * 100 / u128::from(period)
                    )
                }
                _ => String::new(),
            };
            format!("{}{processors}", tick.path)
        }
        None => {
            thread.cgroups.iter().find(|(c, _)| c.split(',').any(|c| c == "cpu" || c.is_empty()))?.1.clone()
        }
    };
    Some(Culprit { kind: CulpritKind::Cgroup, name })
}

/// The group whose memory limit was hit, by the counts of its ticks.
pub(crate) fn out_of_memory(context: &Context<'_>, thread: &Thread) -> Option<Culprit> {
    let hit = |t: &CgroupTick| since_start(context, t, |t| t.memory_limit_hits) > 0;
    let group = ticks(context, thread, hit).next().or_else(|| only(context, hit))?;
    Some(Culprit { kind: CulpritKind::Cgroup, name: group.path.clone() })
}

/// How far a group's counter came since the recording's first look at it; a group looked at once counts whole.
fn since_start(context: &Context<'_>, tick: &CgroupTick, count: impl Fn(&CgroupTick) -> u64) -> u64 {
    let first = context.timeline.cgroup_ticks.iter().find(|t| t.path == tick.path);
    let before = first.filter(|f| f.at < tick.at).map_or(0, &count);
    count(tick).saturating_sub(before)
}

/// The one group that fits, where there is no choice.
fn only<'t>(context: &Context<'t>, fits: impl Fn(&CgroupTick) -> bool) -> Option<&'t CgroupTick> {
    let mut known = context.timeline.cgroup_ticks.iter().rev().filter(|t| fits(t));
    let first = known.next()?;
    known.all(|t| t.path == first.path).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_those_above_it_without_the_root() {
        assert_eq!(upwards("/a/b").collect::<Vec<_>>(), ["/a/b", "/a"]);
        assert_eq!(upwards("/").count() + upwards("").count(), 0);
    }
}
