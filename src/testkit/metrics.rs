//! Prometheus text as a value: look up, add up, compare.

use std::collections::{BTreeMap, HashSet};

/// Labels of one sample, sorted by name.
pub type Labels = BTreeMap<String, String>;

/// One scrape.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Scrape {
    samples: BTreeMap<String, Vec<(Labels, f64)>>,
    /// `# TYPE` of each family.
    pub types: BTreeMap<String, String>,
}

impl Scrape {
    /// Parses a text exposition; panics on a line that is none, and on a sample that occurs twice.
    pub fn parse(text: &str) -> Self {
        let (mut scrape, mut seen) = (Self::default(), HashSet::new());
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if let Some(comment) = line.strip_prefix('#') {
                scrape.comment(comment.trim_start());
            } else {
                let (name, labels, value) = split(line).unwrap_or_else(|| panic!("not a sample: {line:?}"));
                assert!(seen.insert((name.clone(), labels.clone())), "twice: {line:?}");
                scrape.samples.entry(name).or_default().push((labels, value));
            }
        }
        scrape
    }

    fn comment(&mut self, comment: &str) {
        let mut words = comment.split(' ');
        if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
            self.types.insert(name.to_owned(), kind.to_owned());
        }
    }

    /// The value of exactly this series, or `None`.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let wanted: Labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.series(name).iter().find(|(have, _)| *have == wanted).map(|(_, value)| *value)
    }

    /// The sum over every series of this name that has at least these labels; zero when there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matches =
            |have: &Labels| labels.iter().all(|(k, v)| have.get(*k).is_some_and(|value| value == v));
        self.series(name).iter().filter(|(have, _)| matches(have)).map(|(_, value)| value).sum()
    }

    /// Every series of this name.
    pub fn series(&self, name: &str) -> &[(Labels, f64)] {
        self.samples.get(name).map_or(&[], Vec::as_slice)
    }

    /// Every sample name, `_bucket`, `_sum` and `_count` apart.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.samples.keys().map(String::as_str)
    }

    /// How many series there are in all.
    pub fn series_count(&self) -> usize {
        self.samples.values().map(Vec::len).sum()
    }
}

fn split(line: &str) -> Option<(String, Labels, f64)> {
    let name_end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(name_end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => read_labels(inside)?,
        None => (Labels::new(), rest),
    };
    let value = number(rest.split_whitespace().next()?)?;
    Some((name.to_owned(), labels, value))
}

/// The labels up to the closing brace, and what follows it.
fn read_labels(mut text: &str) -> Option<(Labels, &str)> {
    let mut labels = Labels::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = text.split_once("=\"")?;
        let (value, rest) = quoted(after)?;
        labels.insert(name.to_owned(), value);
        text = rest;
    }
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            _ => value.push(c),
        }
    }
    None
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" => Some(f64::NAN),
        _ => text.parse().ok(),
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "whole numbers, written and read as such")]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total Things.\n# TYPE a_total counter\na_total{m=\"x\",o=\"ok\"} 3\n\
        a_total{m=\"x\",o=\"no\"} 4\na_total{m=\"q\\\"}\\n\",o=\"ok\"} 1\nup 1 1700000000\n\
        h_bucket{le=\"+Inf\"} 2\n";

    #[test]
    fn series_are_found_exactly_and_summed_by_label() {
        let scrape = Scrape::parse(TEXT);
        assert_eq!(scrape.get("a_total", &[("o", "ok"), ("m", "x")]), Some(3.0));
        assert_eq!(scrape.get("a_total", &[("m", "x")]), None);
        assert_eq!(scrape.sum("a_total", &[("m", "x")]), 7.0);
        assert_eq!(scrape.get("a_total", &[("m", "q\"}\n"), ("o", "ok")]), Some(1.0));
        assert_eq!((scrape.get("up", &[]), scrape.series_count()), (Some(1.0), 5));
        assert_eq!(scrape.types["a_total"], "counter");
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_series_that_occurs_twice_is_a_fault() {
        Scrape::parse("a 1\na 2\n");
    }
}
