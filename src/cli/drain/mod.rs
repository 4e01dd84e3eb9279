//! `tandem drain`: no new requests for an engine at any router, and a wait for the proof that it carries none.
//!
//! * `args`, `target` — what is asked for. `annotate` — the Pod's annotation, where we may.
//! * `replicas` — every router behind the names, once a round. `proof` — what the rounds prove. `show` — what is said.
//! * `abort` — the way back.
//!
//! The annotation and the reading are two things: from an engine's own `preStop` hook there are mostly no rights, and the Pod's
//! deletion has withdrawn it before. What ends the command is what the routers say, and nothing else.

mod abort;
mod annotate;
mod args;
mod proof;
mod replicas;
mod show;
mod target;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::sleep;

use super::admin::{block_on, encoded};
use super::exit::{Exit, fail, say, show as print};
use crate::config::Kubernetes;
use crate::discovery::kube::own_namespace;
use crate::types::clock::{self, Instant};
use crate::types::drain_order::rfc3339;
use abort::{denied, healthy};
use annotate::{Annotation, Step};
use proof::{Judged, Proof, Round, State, Verdict};
use replicas::{Replicas, Work};
use show::{Document, Ended, Progress};
use target::{Named, Pod, Target};

pub(super) use args::Drain;

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);

impl Drain {
    pub(super) fn run(&self) -> Exit {
        match self.settings() {
            Ok(settings) => block_on(Box::pin(self.all(settings)))
                .unwrap_or_else(|_| fail(&anyhow::anyhow!("the runtime cannot be made"))),
            Err((flag, error)) => {
                say(&format!("{flag}: {error:#}"));
                Exit::Usage
            }
        }
    }

    async fn all(&self, settings: args::Settings) -> Exit {
        let args::Settings { admins, token, health, kubernetes } = settings;
        if let Some((at, path)) = &health
            && let Err(why) = healthy(at, path).await
        {
            say(&format!("http://{at}{path}: {why}; a drain is not taken back yet"));
            return Exit::Unreachable;
        }
        let session = Session {
            args: self,
            target: self.named(&kubernetes).await,
            replicas: Replicas::new(admins, token),
            progress: Progress::new(self.output),
            end: clock::now() + self.wait(),
            stands: false,
        };
        if self.abort {
            session.abort(kubernetes, health.is_some()).await
        } else {
            session.drain(kubernetes).await
        }
    }

    async fn named(&self, kubernetes: &Kubernetes) -> Target {
        let (namespace, name) = match &self.target {
            Named::Listed(url) => return Target::Listed(url.clone()),
            Named::Pod { namespace, name } => (namespace.clone().or_else(|| self.namespace()), name.clone()),
        };
        let namespace = match namespace {
            Some(namespace) => namespace,
            None => own_namespace(kubernetes).await.unwrap_or_else(|| "default".to_owned()),
        };
        Target::Pod(Pod { namespace, name, uid: self.uid() })
    }

    /// What each router of a listed engine is told: something only if there is something to say.
    fn work(&self, target: &Target) -> Work {
        if matches!(target, Target::Pod(_)) {
            return Work::Read;
        }
        let reason = self.reason.as_ref().map(|reason| format!("reason={}", encoded(reason)));
        let forced = self.force_at.map(|at| {
            let deadline = encoded(&rfc3339(at.ms()));
            format!("deadline={deadline}&force=true")
        });
        let query: Vec<String> = [reason, forced].into_iter().flatten().collect();
        Work::Drain(Some(query.join("&")).filter(|query| !query.is_empty()))
    }
}

/// One run.
struct Session<'a> {
    args: &'a Drain,
    target: Target,
    replicas: Replicas,
    progress: Progress,
    end: Instant,
    /// There is a drain that outlives the command.
    stands: bool,
}

type Trying<'a> = Pin<Box<dyn Future<Output = Step> + 'a>>;

impl Session<'_> {
    async fn drain(mut self, kubernetes: Kubernetes) -> Exit {
        let work = self.args.work(&self.target);
        self.stands = work != Work::Read;
        let mut proof = Proof::new(self.args.settle);
        let mut annotation = match &self.target {
            Target::Pod(pod) if !self.args.no_annotate => {
                let order = Some(self.args.order());
                let annotation = Annotation::new(kubernetes, &self.args.annotation, order, pod.uid.is_some());
                Some((annotation, pod.clone()))
            }
            _ => None,
        };
        let mut trying: Option<Trying<'_>> = None;
        if let Some((annotation, pod)) = &mut annotation {
            // Before the first round: it tells which Pod it is.
            let step = annotation.step(pod).await;
            match self.took(step, &mut proof) {
                Ok(Some(pause)) => trying = Some(Box::pin(annotation.go_on(pod, pause))),
                Ok(None) => {}
                Err(exit) => return exit,
            }
        }
        loop {
            let round = match self.replicas.round(&self.target, &work).await {
                Ok(round) => round,
                Err(why) => return denied(&why),
            };
            let judged = proof.add(&self.target, &round);
            if let Err(exit) = self.progress.line(show::line(&self.target, &judged.states), round.at) {
                return exit;
            }
            if let Some(exit) = self.over(&round, &judged) {
                return exit;
            }
            tokio::select! {
                step = tried(&mut trying) => {
                    trying = None;
                    if let Err(exit) = self.took(step, &mut proof) {
                        return exit;
                    }
                }
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// What became of a try to annotate: after which time there is to be another.
    fn took(&mut self, step: Step, proof: &mut Proof) -> Result<Option<Duration>, Exit> {
        let (why, again) = match step {
            Step::Done { uid, stands } => {
                self.stands = stands;
                if let Target::Pod(pod) = &mut self.target
                    && pod.uid.is_none()
                {
                    pod.uid = Some(uid);
                    proof.begin_anew();
                }
                return Ok(None);
            }
            Step::Wrong(why) => {
                say(&why);
                return Err(Exit::Failure);
            }
            Step::Never(why) => (why, None),
            Step::Later(why, pause) => (why, Some(pause)),
        };
        let tried = if again.is_some() { ", tried again" } else { "" };
        let cut = if self.args.force_at.is_some() { "; nothing is cut at the deadline" } else { "" };
        say(&format!(
            "{} is not annotated{tried}: {why}; routers have to withdraw it by themselves (deletion, readiness, \
             label){cut}",
            self.target
        ));
        Ok(again)
    }

    /// `None`: another round.
    fn over(&self, round: &Round, judged: &Judged) -> Option<Exit> {
        let last = clock::now() >= self.end;
        match judged.verdict {
            Verdict::Proven => Some(self.ended(Ended::Drained, round, judged)),
            Verdict::Nobody if matches!(self.target, Target::Listed(_)) => Some(self.nobody()),
            Verdict::Open if last => Some(self.ended(Ended::Open, round, judged)),
            Verdict::Unknown | Verdict::Nobody if last => Some(self.ended(Ended::Unknown, round, judged)),
            // Also at the end: it is a second away from being proven.
            Verdict::Quiet | Verdict::Open | Verdict::Unknown | Verdict::Nobody => None,
        }
    }

    fn nobody(&self) -> Exit {
        let target = &self.target;
        say(&format!("no router lists {target}; name it by its URL, as `tandem endpoints` shows it"));
        Exit::Failure
    }

    /// The last words.
    fn ended(&self, ended: Ended, round: &Round, judged: &Judged) -> Exit {
        let forced = show::forced(&self.target, round);
        let cut = if forced > 0 { format!("; {}", show::cut(forced)) } else { String::new() };
        let target = &self.target;
        let unknown = |(at, state): (&String, &State)| match state {
            State::Unknown(why) => Some(format!("{at}: {why}")),
            _ => None,
        };
        let (exit, said) = match ended {
            Ended::Drained => (Exit::Ok, format!("drained{cut}")),
            Ended::Aborted => (Exit::Ok, "taken back".to_owned()),
            Ended::Open if self.args.abort => (Exit::Failure, "a router still drains it".to_owned()),
            Ended::Open if judged.states.values().any(|state| matches!(state, State::Selectable(_))) => {
                (Exit::Failure, format!("not drained: a router may still give it requests{cut}"))
            }
            Ended::Open if self.stands => {
                (Exit::Failure, format!("not drained in time; the drain stands, --abort takes it back{cut}"))
            }
            Ended::Open => (Exit::Failure, format!("not drained in time{cut}")),
            Ended::Unknown => {
                let all: Vec<String> = judged.states.iter().filter_map(unknown).collect();
                let why = if all.is_empty() { "no router found".to_owned() } else { all.join("; ") };
                let what = if self.args.abort { "taken back" } else { "drained" };
                (Exit::Unreachable, format!("not known to be {what}: {why}"))
            }
        };
        let shown = if self.args.output == args::Form::Json {
            let document = Document::new(ended, target, round, judged);
            say(&format!("{target}: {said}"));
            serde_json::to_string(&document)
                .map_or_else(|error| fail(&error.into()), |text| print(&(text + "\n")))
        } else if exit == Exit::Ok {
            print(&format!("{target}: {said}\n"))
        } else {
            say(&format!("{target}: {said}"));
            Exit::Ok
        };
        if shown == Exit::Ok { exit } else { shown }
    }
}

/// Never, if nothing is tried.
async fn tried(trying: &mut Option<Trying<'_>>) -> Step {
    match trying {
        Some(trying) => trying.await,
        None => std::future::pending().await,
    }
}
