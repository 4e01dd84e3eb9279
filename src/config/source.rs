//! The places values come from: file, environment, flags. Each becomes a tree of the same shape, so that one reader
//! serves all three and a value's mistake names the variable or flag it was written in.
//!
//! The environment is handed in, never read here: tests need no global state.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::Path;

use super::keys;
use super::node::{Node, Value};
use super::problem::{Place, Problem};
use super::suggest::nearest;

/// Largest configuration file, bytes. A thousand endpoints take 60 KiB; this stops a slip such as `--config /dev/zero`.
const LARGEST_FILE: u64 = 4 << 20;

/// Everything that is merged. Precedence: flags, then environment, then file, then defaults.
#[derive(Debug, Clone, Default)]
pub struct Source {
    pub file: Option<File>,
    /// All variables of the process; those without our prefix are ignored.
    pub environment: Vec<(OsString, OsString)>,
    pub flags: Flags,
}

/// A configuration file in memory.
#[derive(Debug, Clone)]
pub struct File {
    /// As it appears in messages: the path the operator gave.
    pub name: String,
    pub text: String,
}

impl File {
    /// Reads a file of at most 4 MiB of UTF-8.
    ///
    /// # Errors
    /// When it cannot be read, is larger, or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let name = path.display().to_string();
        let problem = |message: String| Problem::new(Place::Document(name.as_str().into()), "", message);
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
            .map_err(|e| problem(format!("cannot be read: {e}")))?;
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(problem("larger than 4 MiB".to_owned()));
        }
        let text = String::from_utf8(bytes).map_err(|e| problem(format!("not UTF-8: {}", e.utf8_error())))?;
        Ok(Self { name, text })
    }
}

/// What the command line gave.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Flags that set one key; those below `services[]` belong to the service that the next ones describe.
    pub values: Vec<FlagValue>,
    /// `--worker`: mixed endpoints of one service named `default`.
    pub workers: Vec<String>,
    /// `--prefill`: prefill endpoints of that service, `URL` or `URL,bootstrap=PORT`.
    pub prefills: Vec<String>,
    /// `--decode`: decode endpoints of that service.
    pub decodes: Vec<String>,
    /// `--model`: names that service answers to.
    pub models: Vec<String>,
    /// `--policy` of that service, for every role.
    pub policy: Option<String>,
}

impl Flags {
    /// The first flag that names an endpoint; none: no service is described by flags.
    pub(super) fn endpoint_flag(&self) -> Option<&'static str> {
        self.endpoints().into_iter().find(|(_, _, urls)| !urls.is_empty()).map(|(flag, ..)| flag)
    }

    /// Flag, role and values.
    fn endpoints(&self) -> [(&'static str, &'static str, &[String]); 3] {
        [
            ("--worker", "mixed", &self.workers),
            ("--prefill", "prefill", &self.prefills),
            ("--decode", "decode", &self.decodes),
        ]
    }
}

/// A flag that sets one key.
#[derive(Debug, Clone)]
pub struct FlagValue {
    /// With its dashes: `--listen`.
    pub flag: &'static str,
    pub key: &'static str,
    pub value: String,
}

/// The file's tree, checked against the table of keys. A file that is no YAML gives a problem and no tree.
pub(super) fn file_tree(file: &File, problems: &mut Vec<Problem>) -> Option<Node> {
    match super::node::parse(&file.name, &file.text) {
        Ok(root) => {
            super::schema::check(&root, problems);
            Some(root)
        }
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

pub(super) fn environment_tree(environment: &[(OsString, OsString)], problems: &mut Vec<Problem>) -> Node {
    let mut root = Node::empty_map(Place::Nowhere);
    for (name, value) in environment {
        let name = name.to_string_lossy();
        if !name.starts_with(keys::PREFIX)
            || keys::OTHER_VARIABLES.contains(&&*name)
            || is_service_link(&name)
        {
            continue;
        }
        let place = Place::Variable(name.clone().into_owned());
        let (key, value) = match (keys::find_variable(&name), value.to_str()) {
            (None, _) => {
                problems.push(Problem::new(place, "", unknown_variable(&name)));
                continue;
            }
            (Some(key), None) => {
                problems.push(Problem::new(place, key.path, "not UTF-8").got(&value.to_string_lossy()));
                continue;
            }
            (Some(key), Some(value)) => (key, value),
        };
        root.put(key.path, Node::scalar(place, value));
    }
    root
}

fn unknown_variable(name: &str) -> String {
    let known: Vec<String> = keys::KEYS.iter().filter_map(keys::Key::variable).collect();
    let known = known.iter().map(String::as_str).chain(keys::OTHER_VARIABLES.iter().copied());
    // The prefix is right already; only what follows it is compared.
    let rest = |name: &str| name.trim_start_matches(keys::PREFIX).to_ascii_lowercase();
    let known: Vec<(String, &str)> = known.map(|name| (rest(name), name)).collect();
    let near = nearest(&rest(name), known.iter().map(|(rest, _)| rest.as_str()));
    match known.iter().find(|(rest, _)| Some(rest.as_str()) == near) {
        Some((_, near)) => format!("unknown variable; did you mean `{near}`?"),
        None => "unknown variable".to_owned(),
    }
}

/// Kubernetes tells every container the address of each Service of its namespace in variables named after the
/// Service; one called `tandem` or `tandem-router` makes `TANDEM_PORT`, `TANDEM_ROUTER_SERVICE_HOST` and so on. They
/// are nobody's mistake.
fn is_service_link(name: &str) -> bool {
    let link =
        name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") || name.contains("_SERVICE_PORT_");
    let port =
        name.ends_with("_PORT") || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port_link(rest));
    (link || port) && keys::find_variable(name).is_none()
}

/// `8080_TCP`, `8080_TCP_ADDR`, `8080_UDP_PORT`, `8080_TCP_PROTO`.
fn is_port_link(rest: &str) -> bool {
    let mut parts = rest.split('_');
    let number = parts.next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    number && parts.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"))
}

/// The part of a key that is below the one service of the flags.
pub(super) fn of_service(key: &str) -> Option<&str> {
    key.strip_prefix("services[].")
}

pub(super) fn flags_tree(flags: &Flags, problems: &mut Vec<Problem>) -> Node {
    let mut root = Node::empty_map(Place::Nowhere);
    for FlagValue { flag, key, value } in flags.values.iter().filter(|value| of_service(value.key).is_none())
    {
        root.put(key, Node::scalar(Place::Flag((*flag).to_owned()), value));
    }
    if let Some(flag) = flags.endpoint_flag() {
        let service = service_of_flags(flags, flag, problems);
        root.put("services", list(flag, vec![service]));
    }
    root
}

/// The one service that flags describe, as a file would have written it. `flag`: the first that names an endpoint.
fn service_of_flags(flags: &Flags, flag: &str, problems: &mut Vec<Problem>) -> Node {
    let mut service = Node::empty_map(place(flag));
    service.put("name", Node::scalar(place(flag), "default"));
    if !flags.models.is_empty() {
        let models = flags.models.iter().map(|model| Node::scalar(place("--model"), model)).collect();
        service.put("models", list("--model", models));
    }
    for FlagValue { flag, key, value } in &flags.values {
        if let Some(key) = of_service(key) {
            service.put(key, Node::scalar(place(flag), value));
        }
    }
    for (flag, role, values) in flags.endpoints() {
        if let Some(policy) = &flags.policy {
            service.put(&format!("policy.{role}"), Node::scalar(place("--policy"), policy));
        }
        if !values.is_empty() {
            let entries = values.iter().map(|value| endpoint_of_flag(flag, value, problems)).collect();
            service.put(&format!("discovery.static.{role}"), list(flag, entries));
        }
    }
    service
}

/// `URL`, or for a prefill `URL,bootstrap=PORT`.
fn endpoint_of_flag(flag: &str, value: &str, problems: &mut Vec<Problem>) -> Node {
    let mut endpoint = Node::empty_map(place(flag));
    let (url, option) = match value.split_once(',') {
        Some((url, option)) if flag == "--prefill" => (url, Some(option)),
        _ => (value, None),
    };
    endpoint.put("url", Node::scalar(place(flag), url));
    match option.map(|option| (option, option.strip_prefix("bootstrap="))) {
        Some((_, Some(port))) => endpoint.put("bootstrap_port", Node::scalar(place(flag), port)),
        Some((option, None)) => {
            let problem = Problem::new(place(flag), "", "unknown option after the URL").got(option);
            problems.push(problem.allowed("URL, or URL,bootstrap=PORT"));
        }
        None => {}
    }
    endpoint
}

fn place(flag: &str) -> Place {
    Place::Flag(flag.to_owned())
}

fn list(flag: &str, items: Vec<Node>) -> Node {
    Node { place: place(flag), value: Value::List(items) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(name: &str) -> Vec<String> {
        let mut problems = Vec::new();
        environment_tree(&[(name.into(), "1".into())], &mut problems);
        problems.iter().map(Problem::to_string).collect()
    }

    #[test]
    fn an_unknown_variable_is_a_mistake_with_a_suggestion() {
        assert_eq!(
            problems_of("TANDEM_LISTN"),
            ["TANDEM_LISTN: unknown variable; did you mean `TANDEM_LISTEN`?"]
        );
        assert_eq!(problems_of("TANDEM_KAFKA"), ["TANDEM_KAFKA: unknown variable"]);
        assert_eq!(problems_of("TANDEM_SERVICES"), ["TANDEM_SERVICES: unknown variable"]);
        assert!(problems_of("PATH").is_empty() && problems_of("TANDEM_CONFIG").is_empty());
    }

    #[test]
    fn addresses_that_kubernetes_puts_into_the_environment_are_no_mistakes() {
        for name in [
            "TANDEM_SERVICE_HOST",
            "TANDEM_SERVICE_PORT",
            "TANDEM_SERVICE_PORT_HTTP",
            "TANDEM_PORT",
            "TANDEM_PORT_8080_TCP",
            "TANDEM_PORT_8080_TCP_ADDR",
            "TANDEM_ROUTER_SERVICE_HOST",
            "TANDEM_ROUTER_PORT_9090_UDP_PROTO",
        ] {
            assert!(problems_of(name).is_empty(), "{name}");
        }
        assert_eq!(problems_of("TANDEM_PORT_X").len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_variable_that_is_not_text_is_a_mistake() {
        use std::os::unix::ffi::OsStringExt as _;
        let mut problems = Vec::new();
        environment_tree(&[("TANDEM_API_KEYS_FILE".into(), OsString::from_vec(vec![0xff]))], &mut problems);
        assert_eq!(problems.len(), 1);
    }
}
