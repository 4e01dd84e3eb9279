//! Typed values out of located trees. A bad value is a [`Problem`] and the default stays, so reading always goes on.
//!
//! A [`Section`] is the same mapping in every layer (file, environment, flags). A key is read from each layer that has
//! it and the highest wins; a bad value in the file is reported even where a flag overrides it.

use super::discovery::Labels;
use super::labels;
use super::node::{Entry, Node, Value};
use super::problem::{Place, Problem};
use super::units::Wrong;

/// The same section in all layers, lowest precedence first.
pub(super) struct Section<'a> {
    path: String,
    layers: Vec<&'a Node>,
}

impl<'a> Section<'a> {
    pub(super) fn root(layers: Vec<&'a Node>) -> Self {
        Self { path: String::new(), layers }
    }

    pub(super) fn section(&self, name: &str) -> Section<'a> {
        Section { path: self.path(name), layers: self.nodes(name) }
    }

    /// The entries of a list, from the highest layer that has one.
    pub(super) fn entries(&self, name: &str) -> Vec<Section<'a>> {
        let path = self.path(name);
        let items = self.nodes(name).last().map_or(&[][..], |node| node.items());
        let entry = |(i, node)| Section { path: format!("{path}[{i}]"), layers: vec![node] };
        items.iter().enumerate().map(entry).collect()
    }

    /// The key in the highest layer that has it.
    pub(super) fn node(&self, name: &str) -> Option<&'a Node> {
        self.nodes(name).last().copied()
    }

    /// What stands at a path below this section in the highest layer that has it. The path may go through lists.
    pub(super) fn written(&self, path: &str) -> Option<&'a Node> {
        self.layers.iter().rev().find_map(|layer| descend(layer, path))
    }

    /// Where a path below this section was written; the nearest place above it if it was not. The path may go
    /// through lists: `services[1].name`.
    pub(super) fn place(&self, path: &str) -> Place {
        let found = self.written(path);
        let above = path.rfind(['.', '[']).map(|at| &path[..at]);
        match (found, above) {
            (Some(node), _) => node.place.clone(),
            (None, Some(above)) => self.place(above),
            (None, None) => self.layers.first().map_or(Place::Nowhere, |layer| layer.place.clone()),
        }
    }

    pub(super) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn nodes(&self, name: &str) -> Vec<&'a Node> {
        self.layers.iter().filter_map(|layer| layer.get(name)).collect()
    }
}

fn descend<'a>(node: &'a Node, path: &str) -> Option<&'a Node> {
    path.split(['.', '[']).try_fold(node, |node, step| match step.strip_suffix(']') {
        Some(index) => node.items().get(index.parse::<usize>().ok()?),
        None => node.get(step),
    })
}

/// Collects problems while values are taken.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    /// Puts the key's value into `into`, or leaves the default there.
    pub(super) fn set<T>(
        &mut self,
        section: &Section<'_>,
        name: &str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        into: &mut T,
    ) {
        for node in section.nodes(name) {
            match &node.value {
                Value::Scalar(text) => self.scalar(node, &section.path(name), text, &parse, into),
                Value::Null => self.problem(node, &section.path(name), "has no value"),
                Value::List(_) => self.problem(node, &section.path(name), "must be one value, not a list"),
                Value::Map(_) => self.problem(node, &section.path(name), "must be one value, not a mapping"),
            }
        }
    }

    /// Like [`Reader::set`] for a key that may be absent: `null` is "not set", also over a lower layer.
    pub(super) fn set_optional<T>(
        &mut self,
        section: &Section<'_>,
        name: &str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        into: &mut Option<T>,
    ) {
        if section.node(name).is_some_and(|node| node.value != Value::Null) {
            self.set(section, name, |text| parse(text).map(Some), into);
        }
    }

    /// A list of names. Bad ones are empty: the list keeps its positions, and is not taken for one that names nothing.
    pub(super) fn names(
        &mut self,
        section: &Section<'_>,
        name: &str,
        parse: impl Fn(&str) -> Result<String, Wrong>,
    ) -> Vec<String> {
        let Some(node) = section.node(name) else { return Vec::new() };
        let names =
            if node.value == Value::Null { Vec::new() } else { self.list(node, &section.path(name), parse) };
        names.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Puts the key's list into `into`, or leaves the default there; `None` stands for an entry that is bad.
    pub(super) fn set_list<T>(
        &mut self,
        section: &Section<'_>,
        name: &str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        into: &mut Vec<Option<T>>,
    ) {
        match section.node(name) {
            Some(node) if node.value == Value::Null => {
                self.problem(node, &section.path(name), "has no value");
            }
            Some(node) => *into = self.list(node, &section.path(name), parse),
            None => {}
        }
    }

    fn list<T>(
        &mut self,
        node: &Node,
        path: &str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
    ) -> Vec<Option<T>> {
        if !matches!(node.value, Value::List(_)) {
            self.problem(node, path, "must be a list");
            return vec![None];
        }
        let mut list = Vec::new();
        for (i, item) in node.items().iter().enumerate() {
            let (path, mut into) = (format!("{path}[{i}]"), None);
            match &item.value {
                Value::Scalar(text) => {
                    self.scalar(item, &path, text, |text| parse(text).map(Some), &mut into);
                }
                _ => self.problem(item, &path, "must be one value"),
            }
            list.push(into);
        }
        list
    }

    /// A mapping of labels. Bad ones are left out.
    pub(super) fn labels(&mut self, section: &Section<'_>, name: &str) -> Labels {
        let Some(node) = section.node(name) else { return Labels::new() };
        let path = section.path(name);
        let entries = match &node.value {
            Value::Map(entries) => entries.as_slice(),
            Value::Null => &[],
            _ => {
                self.problem(node, &path, "must be a mapping of labels to their values");
                &[]
            }
        };
        let mut labels = Labels::new();
        for Entry { key, place, node } in entries {
            let (path, mut label, mut value) = (format!("{path}[{key}]"), None, None);
            let at = Node::scalar(place.clone(), key);
            self.scalar(&at, &path, key, |text| labels::key(text).map(Some), &mut label);
            match &node.value {
                Value::Scalar(text) => {
                    self.scalar(node, &path, text, |text| labels::value(text).map(Some), &mut value);
                }
                Value::Null => self.problem(node, &path, "has no value; an empty one is written ''"),
                _ => self.problem(node, &path, "must be one value"),
            }
            labels.extend(label.zip(value));
        }
        labels
    }

    /// A key that must be there.
    pub(super) fn require(&mut self, section: &Section<'_>, name: &str) {
        // What is no mapping was reported as that.
        let Some(Node { place, value: Value::Map(_) }) = section.layers.last() else { return };
        if section.node(name).is_none() {
            self.problems.push(Problem::new(place.clone(), section.path(name), "is required"));
        }
    }

    fn scalar<T>(
        &mut self,
        node: &Node,
        path: &str,
        text: &str,
        parse: impl Fn(&str) -> Result<T, Wrong>,
        into: &mut T,
    ) {
        match parse(text) {
            Ok(value) => *into = value,
            Err(Wrong { message, allowed }) => {
                let problem = Problem::new(node.place.clone(), path, message);
                self.problems.push(problem.got(text).allowed(allowed));
            }
        }
    }

    fn problem(&mut self, node: &Node, path: &str, message: &str) {
        self.problems.push(Problem::new(node.place.clone(), path, message));
    }
}
