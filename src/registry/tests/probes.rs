use super::*;

#[test]
fn an_engine_takes_requests_once_it_has_answered() {
    let mut rig = Rig::new(&[probed()]);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.words(), ["a probing"]);
    let job = rig.last_job();
    assert!(job.endpoint.id == rig.of("a").id && job.models == Some(vec![]) && !job.bootstrap);
    rig.up("a", 1, "192.0.2.1");
    assert_eq!(rig.jobs(), 1, "one is under way");
    rig.verdict(&job, Err("status 503".into()));
    assert_eq!(
        (rig.words(), rig.of("a").detail().as_deref().cloned()),
        (vec!["a probing".into()], Some("status 503".into()))
    );
    rig.verdict(&job, Ok(Facts::default()));
    assert_eq!((rig.words(), rig.of("a").detail()), (vec!["a selectable".into()], None));
}

#[test]
fn a_withdrawal_cancels_the_probe_and_its_verdict_counts_for_nothing() {
    for (reason, departs) in
        [(Reason::NotReady, false), (Reason::NotEligible, false), (Reason::Deleted, true)]
    {
        let mut rig = Rig::new(&[probed()]);
        rig.up("a", 1, "192.0.2.1");
        let first = rig.last_job();
        let verdict = if departs { PodVerdict::Gone(reason) } else { PodVerdict::withdraw(reason) };
        rig.apply(vec![update(0, "a", 0, verdict)]);
        assert!(first.cancel.is_cancelled(), "{reason:?}");
        rig.verdict(&first, Ok(Facts::default()));
        assert!(!first.endpoint.is_selectable());
        rig.up("a", 1, "192.0.2.1");
        let second = rig.last_job();
        assert!(second.number != first.number);
        rig.verdict(&first, Ok(Facts::default()));
        assert_eq!(rig.words(), ["a probing"], "of an older job");
        rig.verdict(&second, Ok(Facts::default()));
        assert_eq!(rig.words(), ["a selectable"]);
    }
}

#[test]
fn what_was_learnt_of_an_engine_lasts_as_long_as_its_process() {
    let mut rig = Rig::new(&[probed()]);
    let pass = |rig: &mut Rig| {
        let job = rig.last_job();
        rig.verdict(&job, Ok(Facts::default()));
    };
    rig.up("a", 1, "192.0.2.1");
    pass(&mut rig);
    for (reason, again) in [
        (Reason::NotEligible, false),
        (Reason::DrainAnnotation, false),
        (Reason::NotReady, true),
        (Reason::ReadyUnknown, true),
        (Reason::NotRunning, true),
        (Reason::NoAddress, true),
    ] {
        let before = rig.jobs();
        rig.apply(vec![withdraw("a", reason)]);
        rig.up("a", 1, "192.0.2.1");
        assert_eq!(rig.jobs() - before, usize::from(again), "{reason:?}");
        assert_eq!(rig.of("a").is_selectable(), !again, "{reason:?}");
        pass(&mut rig);
    }
    let restarted = PodVerdict::Register { listeners: vec![listener("a", "192.0.2.1")], epoch: 1 };
    rig.apply(vec![update(0, "a", 1, restarted)]);
    assert_eq!(rig.words(), ["a probing"], "another process");
    pass(&mut rig);
    assert_eq!(rig.words(), ["a selectable"]);
}

#[test]
fn a_pod_whose_address_is_taken_is_not_asked() {
    let mut rig = Rig::new(&[probed()]);
    rig.up("old", 1, "192.0.2.1");
    let job = rig.last_job();
    rig.up("new", 2, "192.0.2.1");
    assert!(job.cancel.is_cancelled(), "it would ask the new one");
    rig.up("old", 1, "192.0.2.1");
    assert_eq!((rig.jobs(), rig.words()), (2, vec!["new probing".into(), "old address_taken".into()]));
}

#[test]
fn a_bootstrap_port_is_learnt_from_the_engine_and_is_no_other_fact() {
    let mut config = pods(EngineKind::Sglang, "chat");
    config.cohorts_guard = false;
    let mut rig = Rig::new(&[config]);
    let prefill = || Listener { role: Role::Prefill, ..listener("a", "192.0.2.1") };
    rig.apply(vec![register("a", 1, vec![prefill()])]);
    let job = rig.last_job();
    assert!(job.bootstrap && job.models.is_none() && !job.facts);
    rig.verdict(&job, Ok(Facts { bootstrap_port: Some(8998), ..Facts::default() }));
    let endpoint = rig.of("a");
    assert_eq!((endpoint.bootstrap_port(), endpoint.is_selectable()), (Some(8998), true));
    rig.apply(vec![register("a", 1, vec![prefill()])]);
    assert!(Arc::ptr_eq(&endpoint, &rig.of("a")));
    let decode = Listener { role: Role::Decode, ..listener("d", "192.0.2.2") };
    rig.apply(vec![register("d", 1, vec![decode])]);
    assert!(rig.of("d").is_selectable(), "decodes have no bootstrap server");
}
