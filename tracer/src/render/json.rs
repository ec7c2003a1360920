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
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
    let schema = serde_json::to_value(settings.into_generator().into_root_schema_for::<Report>())?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema.json");

    #[test]
    fn the_published_schema_is_current() {
        let current = schema().expect("a schema");
        if std::env::var_os("WHYIDLE_BLESS").is_some() {
            std::fs::write(PUBLISHED, &current).expect("docs/schema.json can be written");
        }
        let published = std::fs::read_to_string(PUBLISHED).expect("docs/schema.json");
        assert_eq!(published, current, "WHYIDLE_BLESS=1 cargo test -p whyidle --lib render:: rewrites it");
    }

    fn validator() -> jsonschema::Validator {
        let schema = serde_json::from_str(&schema().expect("a schema")).expect("JSON");
        jsonschema::validator_for(&schema).expect("a valid schema")
    }

    #[test]
    fn every_sample_is_valid() {
        let validator = validator();
        for report in [
            sample::slow_disk(),
            sample::healthy(),
            sample::no_device(),
            sample::hostile(),
            sample::many_devices(),
        ] {
            let json = json(&report).expect("it serialises");
            let value = serde_json::from_str(&json).expect("JSON");
            let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
            assert!(errors.is_empty(), "{errors:#?}");
        }
    }

    #[test]
    fn the_schema_asks_for_every_field_even_null_ones() {
        let validator = validator();
        let whole = serde_json::to_value(sample::slow_disk()).expect("JSON");
        for field in ["schema", "window", "gpus", "findings", "losses", "probes", "questions", "notes"] {
            let mut cut = whole.clone();
            cut.as_object_mut().expect("an object").remove(field);
            assert!(!validator.is_valid(&cut), "{field}");
        }
        let mut cut = whole.clone();
        cut["gpus"][0].as_object_mut().expect("a gpu").remove("collective_ns");
        assert!(!validator.is_valid(&cut), "null is written, not left out");
        let mut wrong = whole;
        wrong["gpus"][0]["causes"][0]["mechanism"] = "storage.reed".into();
        assert!(!validator.is_valid(&wrong));
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped_and_still_the_same_text() {
        let mut report = sample::healthy();
        report.notes = vec!["\u{9b}2J \u{202e}gpj \u{e0041} \\u0041 é".to_owned()];
        let text = json(&report).expect("it serialises");
        assert!(text.contains(r"\u009b2J \u202egpj \udb40\udc41 \\u0041 é"), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).expect("JSON"), report);
    }
}
