//! Texts of `--help` and `--version` that are longer than a line.

/// `-V`.
pub(super) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("BUILD_OF_REVISION"), ")");

/// `--version`.
pub(super) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\nrevision: ",
    env!("BUILD_OF_REVISION"),
    "\ncompiler: ",
    env!("BUILD_OF_RUSTC"),
    "\ntarget:   ",
    env!("BUILD_OF_TARGET"),
    "\nprofile:  ",
    env!("BUILD_OF_PROFILE"),
);

macro_rules! exit_codes {
    () => {
        "\
Exit codes:
  0  done
  1  it was tried and failed
  2  wrong command line or configuration; every mistake is on standard error
  3  a server that the command needs cannot be reached"
    };
}

pub(super) const TANDEM: &str = concat!(
    "\
Examples:
  See it work, without engines of your own:
    tandem demo
  Route to two engines, without a file:
    tandem router --worker http://10.0.0.7:8000 --worker http://10.0.0.8:8000
  Route to a prefill and a decode engine:
    tandem router --engine vllm --prefill http://10.0.0.7:8000 --decode http://10.0.0.8:8000
  Check a configuration and see what it means:
    tandem check router.yaml --print
  How is it, and why does an engine get no requests?
    tandem status
    tandem endpoints
  An engine to try it with:
    tandem engine --wire vllm --listen 127.0.0.1:8000

",
    exit_codes!()
);

pub(super) const ROUTER: &str = concat!(
    "\
A flag wins over its TANDEM_* variable (TANDEM_LISTEN, TANDEM_TIMEOUTS_IDLE, …), a variable
over the file, the file over the default. docs/configuration.md describes every key.

Examples:
  Two engines that serve one model; other models are answered with 404:
    tandem router --worker http://10.0.0.7:8000 --worker http://10.0.0.8:8000 --model mistral-7b
  SGLang, two prefills and two decodes; the second prefill's bootstrap server is not on port 8998:
    tandem router --engine sglang \\
      --prefill http://10.0.0.7:30000 --prefill http://10.0.0.8:30000,bootstrap=9001 \\
      --decode http://10.0.0.9:30000 --decode http://10.0.0.10:30000
  vLLM, KV pulled by NIXL:
    tandem router --engine vllm --prefill http://10.0.0.7:8000 --decode http://10.0.0.8:8000
  From a file, listening elsewhere than it says:
    tandem router --config /etc/tandem/router.yaml --listen 127.0.0.1:8080
  The same by environment, as in a container:
    TANDEM_CONFIG=/etc/tandem/router.yaml TANDEM_LISTEN=127.0.0.1:8080 tandem router
  Try it:
    curl http://127.0.0.1:8080/v1/models

",
    exit_codes!()
);

pub(super) const CHECK: &str = concat!(
    "\
TANDEM_* variables apply as they would to `tandem router`; --no-env leaves them out. Files
that the configuration names (keys, tokens, secrets) are not opened: they need not exist here.

Examples:
  In a pipeline, as a gate:
    tandem check router.yaml --no-env
  What would it run with, defaults included? The output is a configuration itself:
    tandem check router.yaml --print > effective.yaml
  For an editor that completes and checks while you write:
    tandem check --schema > router.schema.json
  For programs:
    tandem check router.yaml --output json | jq '.problems[].key'

",
    exit_codes!()
);

pub(super) const STATUS: &str = concat!(
    "\
Exit code 1 where the router is not ready, so that scripts need not read. Below the table stands what is amiss:
Pods that are not known yet or refused by the API server, a role that is missing, engines put last.

Examples:
  The router on this machine:
    tandem status
  Another one, by its admin listener; TANDEM_ADMIN does the same:
    tandem status --admin http://10.0.0.5:9090
  For programs:
    tandem status --output json | jq '.services[].lacks'

",
    exit_codes!()
);

pub(super) const ENDPOINTS: &str = concat!(
    "\
SINCE is the time since the note's word, or being selectable, began. One that has left is shown until its last
request is over and for 15 s. Below them stand the Pods that a service sees and that give it no endpoint.
docs/discovery.md has every word with what to do about it; docs/admin-api.md the fields of the document.

Examples:
  Who gets requests, and who does not for which reason:
    tandem endpoints --admin http://10.0.0.5:9090
  Ids of endpoints that are withdrawn and still carry requests:
    tandem endpoints --output json | \\
      jq '.endpoints[] | select((.selectable | not) and .in_flight > 0) | .id'
  Pods that give no endpoint, and why:
    tandem endpoints --output json | jq -r '.pods[] | [.namespace, .name, .reason, .detail] | @tsv'

",
    exit_codes!()
);

pub(super) const SPLIT: &str = concat!(
    "\
SINCE VERSION and REQUESTS count from when the split in force was applied. COVERED: it can take a request now, or what
it lacks; PAIRS: prefills and decodes that may serve together, by pairing token; PASSED ON: requests that fell to it
and went to another cohort, by why. docs/canary.md says what a split does, docs/admin-api.md has the fields.

--set takes the entries that the router has and changes the named weights alone, in one step and only over the version
that it read: if another split was applied meanwhile nothing is changed, exit code 1. --reset goes back to the
configured split. Either is that one router's, and forgotten at its restart. Where there are several routers tell each
of them, or change the file that they all read.

Examples:
  What should each cohort get, and what did it get?
    tandem split --admin http://10.0.0.5:9090
  A tenth for r2, then none:
    tandem split chat --set r1=90,r2=10
    tandem split chat --set r1=100 --set r2=0
  The configured split again:
    tandem split chat --reset --token-file /etc/tandem/token
  The same at each of three routers:
    for ip in 10.0.0.5 10.0.0.6 10.0.0.7; do tandem split chat --set r2=10 --admin http://$ip:9090; done
  For programs; both documents in one:
    tandem split chat --json | jq '.split.services[].cohorts[] | {cohort, target_share, share_1m}'

",
    exit_codes!()
);

pub(super) const DRAIN: &str = concat!(
    "\
A Pod is annotated, which withdraws it at every router, those that start meanwhile too. Where that may not be
(an engine's own hook needs no rights) it is said, and something else has to withdraw it: its deletion has, when
a preStop hook runs. A listed engine is ordered out at each router, which takes the routers' token.

Then every router behind --admin is asked, each second, until all of them prove that they give it nothing and
have nothing open there, KV that a decode still has to pull included: in two rounds, one after the other, the
same processes answer anew. A router that is not reached or does not know the engine is unknown; so is one that
restarted, came or went, until the set of routers has stayed the same for --settle.

Exit code 0: proven. 1: still open or selectable at the end of the wait (the drain stands), no router lists the
engine, or somebody refuses. 3: not known.

With --abort --health an engine that no router lists is done: no router has a drain of it.

Examples:
  Before a Pod is deleted by hand, from a shell with a kubeconfig:
    tandem drain llm/chat-0 --admin http://tandem-admin.llm:9090 --wait 10m
  The same, and what is open after 200 s is cut:
    tandem drain llm/chat-0 --admin http://tandem-admin.llm:9090 --force-at 200s --reason repair
  It stays after all:
    tandem drain llm/chat-0 --admin http://tandem-admin.llm:9090 --abort
  In an engine Pod's preStop hook, which can hold no variables; `tandem-admin` is the routers' headless Service:
    TANDEM_ENGINE=pod/chat-0 POD_NAMESPACE=llm POD_UID=… TANDEM_ADMIN=http://tandem-admin:9090 tandem drain --wait 600s
  An engine that the routers' configuration lists:
    tandem drain http://10.0.0.7:8000 --admin http://tandem-admin:9090 --token-file /etc/tandem/token
  That one has started again; as its startup probe:
    tandem drain http://10.0.0.7:8000 --abort --health http://127.0.0.1:8000/health
  For programs; the progress is on standard error:
    tandem drain llm/chat-0 --output json | jq -r .verdict

",
    exit_codes!()
);

pub(super) const INSTALL: &str = concat!(
    "\
Examples:
  In an initContainer of an engine Pod, into a volume that the engine's container mounts too:
    tandem install /opt/tandem

",
    exit_codes!()
);

pub(super) const COMPLETIONS: &str = concat!(
    "\
Examples:
    tandem completions bash > /etc/bash_completion.d/tandem
    tandem completions zsh > ~/.zfunc/_tandem
    tandem completions fish > ~/.config/fish/completions/tandem.fish

",
    exit_codes!()
);

pub(super) const MAN: &str = concat!(
    "\
Examples:
    tandem man | man -l -
    tandem man --dir /usr/local/share/man/man1

",
    exit_codes!()
);

pub(super) const ENGINE: &str = concat!(
    "\
It has no model: its text is a function of the prompt. On the front door, GET /mock/log shows every
request byte by byte and what is held; the header `x-mock` scripts one request, POST /mock/script
those to come. docs/engine.md has all.

Examples:
  One engine that answers everything:
    tandem engine --wire vllm --listen 127.0.0.1:8000
  An SGLang pair that takes its time; ask both at once, with the same bootstrap_room:
    tandem engine --wire sglang --role prefill --listen 127.0.0.1:8001 --bootstrap-port 8998
    tandem engine --wire sglang --role decode --listen 127.0.0.1:8002 --per-token 10ms
  A vLLM pair whose lease lasts a second:
    tandem engine --wire vllm --role prefill --listen 127.0.0.1:8003 --lease 1s
    tandem engine --wire vllm --role decode --listen 127.0.0.1:8004
  A request that breaks off after two tokens:
    curl http://127.0.0.1:8000/v1/chat/completions -H 'x-mock: after=2,reset' \\
      --json '{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true}'

",
    exit_codes!()
);

pub(super) const DEMO: &str = concat!(
    "\
Two prefill engines, two decode engines and the router, in one process. The engines are mocks
(`tandem engine`); the router is the one that `tandem router` runs. It prints commands to try, then
who serves what. Ctrl-C ends all of it. docs/demo.md describes what is shown.

Examples:
  See it work:
    tandem demo
  With SGLang's wire, on ports of your choice, and only your own requests:
    tandem demo --engine sglang --listen 127.0.0.1:8081 --admin-listen 127.0.0.1:9091 --no-traffic
  One line for each request, in a file:
    tandem demo > demo.log
  Two releases, and the share of the second one going up, back and up while requests go on:
    tandem demo --canary
  In a pipeline: do eight requests give the right texts?
    tandem demo --once --json | jq .ok

",
    exit_codes!()
);
