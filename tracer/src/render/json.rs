//! The report a program reads: the JSON contract (`docs/schema.json`).

use super::escape::unsafe_to_print;
use crate::finding::Report;

/// The report as JSON, fields in the contract's order, ending in a newline. Characters that could act on a
/// terminal or reverse reading order are written as `\uXXXX`: the same JSON, safe to look at.
///
/// # Errors
/// When serde refuses the report; none of the contract's types does.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(report).map(|text| visible(&text) + "\n")
}

/// The published schema of [`json`]'s output, as it stands in `docs/schema.json`.
///
/// # Errors
/// As for [`json`].
pub fn schema() -> Result<String, serde_json::Error> {
    // Through a sorted map, so that the bytes do not depend on which features other crates switch on.
    let schema = serde_json::to_value(schemars::schema_for!(Report))?;
    serde_json::to_string_pretty(&sorted(schema)).map(|text| text + "\n")
}

fn sorted(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            let map: std::collections::BTreeMap<String, Value> =
                map.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            Value::Object(map.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        other => other,
    }
}

/// Outside strings JSON is ASCII, so each such character stands inside one and may be written as escapes.
fn visible(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if c != '\n' && unsafe_to_print(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}
