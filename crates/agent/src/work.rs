//! The agent's work: rounds, in each of which it takes what the rings have, answers what it is asked, and looks after all who take part; then the trace's
//! `end`.

mod end;

use crate::asked::Asked;
use crate::asleep::Asleep;
use crate::damage::Damage;
use crate::drain::Drain;
use crate::epochs::{self, Epochs};
use crate::go_on_unseen;
use crate::hold::{self, Hold};
use crate::inputs::Inputs;
use crate::kept::Keeper;
use crate::late::{self, Late};
use crate::members::Members;
use crate::merge::{self, Merge, Sink};
use crate::native::NativeCpuid;
use crate::place::Place;
use crate::processes::{self, Processes};
use crate::slices::Slices;
use crate::stopped::StoppedOwners;
use crate::strays::Strays;
use crate::told::Told;
use crate::{exec, image, namespaces, requests, slices, stop};
use crate::{Agent, OnFull, Outsiders, FRAME_AGE, WORTHWHILE};
use reprise_abi::event::EndReason;
use reprise_launch::record::Stopped;
use reprise_launch::SharedSession;
use reprise_trace::{Images, TraceError, Writer};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// An agent, and who does what of its work.
pub struct Work {
    agent: Agent,
    begun: Instant,
    drain: Drain,
    merge: Merge,
    processes: Processes,
    members: Members,
    owners: StoppedOwners,
    outsiders: Outsiders,
    strays: Strays,
    told: Told,
    slices: Slices,
    late: Late,
    damage: Damage,
    asleep: Asleep,
    keeper: Keeper,
    images: Images,
    handed: Vec<u8>,
    native: NativeCpuid,
    place: Place,
    /// Why nothing more is recorded.
    full: Option<String>,
    frame_begun: Instant,
    epochs: Epochs,
}

/// How things stand in one round.
struct Round {
    /// The recording is to end here.
    stops: bool,
    /// What comes is not written.
    lost: bool,
    /// The program's end.
    end: Option<(i32, EndReason)>,
    /// The replay that follows is to catch up first.
    waits: bool,
}

/// How the recording ended: the program's wait status, and why.
type Ending = (Option<i32>, EndReason);

/// Where events go.
fn sink<'a>(writer: &'a mut Writer, drain: &'a mut Drain, discard: bool) -> Sink<'a> {
    Sink {
        writer,
        census: &mut drain.census,
        inputs: &mut drain.inputs,
        discard,
    }
}

/// Why a recording ends of whose words this is wrong.
fn damaged(what: &str) -> String {
    format!("the program damaged the session's memory ({what})")
}

impl Work {
    /// It begins.
    pub fn new(mut agent: Agent) -> Work {
        let begun = Instant::now();
        tracing::info!(launcher = agent.launcher, dir = ?agent.dir, lazy = agent.lazy, "begins");
        let known = agent.census.all_known();
        let inputs = Inputs::new(agent.store.clone(), agent.dir.clone(), !agent.keeps_stretch);
        let asleep = Asleep::new(&agent.shared);
        let damage = Damage::new(&agent.shared);
        processes::tell_of_life(&agent.shared.session().agent_life);
        Work {
            begun,
            drain: Drain::new(std::mem::take(&mut agent.census), inputs),
            merge: Merge::new(),
            processes: Processes::new(agent.launcher),
            members: Members::of_recorder(agent.launcher),
            owners: StoppedOwners::new(),
            outsiders: std::mem::take(&mut agent.outsiders),
            strays: Strays::new(known),
            told: Told::default(),
            slices: Slices::new(),
            late: Late::default(),
            damage,
            asleep,
            keeper: Keeper::new(agent.store.clone(), agent.dir.clone()),
            images: Images::new(&agent.dir),
            handed: Vec::new(),
            native: NativeCpuid::default(),
            place: Place::of(&agent.dir),
            full: None,
            frame_begun: Instant::now(),
            epochs: Epochs::new(),
            agent,
        }
    }

    /// Until the trace is closed ([`Agent::run`]).
    pub fn run(mut self) -> Result<(), TraceError> {
        let ending = loop {
            let (round, buried) = self.begin_round();
            let moved = self.take_events(&round, buried);
            self.answer_requests(&round);
            self.look_after_all(&round, moved);
            self.end_whom_nobody_records();
            self.share_the_processors();
            if let Some(ending) = self.is_over(&round) {
                break ending;
            }
            self.close_old_frame();
            if moved < WORTHWHILE {
                let soon =
                    self.late.waits() || self.epochs.waits() || self.drain.inputs.is_waited_for();
                self.agent.sleep(soon);
            }
        };
        self.finish(ending)
    }

    /// Nothing more is recorded, for this reason, unless there was another one before.
    fn is_full(&mut self, why: impl FnOnce() -> String) {
        if self.full.is_none() {
            self.full = Some(why());
            self.agent.give_up();
        }
    }

    /// Whether all goes on, and whether the events of the dead could be written.
    fn begin_round(&mut self) -> (Round, Result<(), TraceError>) {
        // Asked before draining: what was done before that is in the rings by then.
        let stops = (stop::is_wanted() || self.drain.census.stops()) && self.full.is_none();
        // Asked before draining: what the program wrote before its end is in the ring by then.
        self.owners.look(&self.agent.shared, &self.members);
        let damaged = self.drain.is_lost() || self.merge.damage().is_some();
        if damaged {
            // The word that says so may have been written over since.
            self.agent.leave();
        }
        let lost = self.full.is_some() || damaged;
        let buried = self.bury_the_dead(lost);
        let end = self.agent.ended(&mut self.processes, &self.members, lost);
        let waits = self.is_held() && end.is_none() && !stops;
        let round = Round {
            stops,
            lost,
            end,
            waits,
        };
        (round, buried)
    }

    fn bury_the_dead(&mut self, lost: bool) -> Result<(), TraceError> {
        let mut buried = Ok(());
        let mut sink = sink(&mut self.agent.writer, &mut self.drain, lost);
        let merge = &mut self.merge;
        let (shared, members) = (&self.agent.shared, &self.members);
        self.processes
            .look_again(shared, members, &mut |shared, n, status| {
                let done = merge.reap(shared, &mut sink, n, status);
                buried = std::mem::replace(&mut buried, Ok(())).and(done);
            });
        buried
    }

    /// Is the replay that follows to catch up first? Without one the program's words about it count for nothing.
    fn is_held(&mut self) -> bool {
        let written = self.agent.writer.stats().bytes_compressed;
        let hold = match self.agent.keeps_stretch {
            true => hold::look(self.agent.shared.session(), written),
            false => Hold::No,
        };
        if hold == Hold::Failed {
            self.is_full(|| "its last stretch can't be kept any more".into());
        }
        hold == Hold::Wait
    }

    /// Takes what the rings have; how many bytes.
    fn take_events(&mut self, round: &Round, buried: Result<(), TraceError>) -> usize {
        let taken = match self.agent.shared.rings() {
            Some(_) => buried.and(self.take_of_many_rings(round)),
            None => self.take_of_one_ring(round),
        };
        if self.agent.shared.has_leader() {
            self.attend_leader();
        }
        let moved = taken.unwrap_or_else(|e| {
            self.is_full(|| e.to_string());
            0
        });
        if moved > 0 {
            let gathered = self.agent.writer.gathered();
            tracing::trace!(moved, gathered, stops = round.stops, "drained");
        }
        moved
    }

    /// What a leader's threads log is its own, and its epochs end after a time.
    fn attend_leader(&mut self) {
        let mut sink = sink(&mut self.agent.writer, &mut self.drain, true);
        // Nothing is written.
        let _ = self.merge.some(&self.agent.shared, &mut sink);
        let shared = &self.agent.shared;
        let told = self.epochs.whom_to_tell(shared.session());
        if let Some(slot) = told
            .map(|i| shared.slot(i))
            .filter(|slot| late::is_used(slot))
        {
            slices::interrupt(shared, slot, &self.members);
        }
        if let Some(why) = self.epochs.look(self.agent.shared.session()) {
            self.is_full(|| format!("an epoch can't be recorded: {why}"));
        }
    }

    fn take_of_many_rings(&mut self, round: &Round) -> Result<usize, TraceError> {
        let shared = &self.agent.shared;
        let mut sink = sink(&mut self.agent.writer, &mut self.drain, round.lost);
        let may_wait = |sink: &Sink| !sink.inputs.is_waited_for() && !merge::presses(shared);
        match round.end {
            _ if round.waits => Ok(0),
            Some(_) => self.merge.all(shared, &mut sink),
            None if round.stops => self.merge.by_now(shared, &mut sink),
            None if self.agent.lazy && may_wait(&sink) => Ok(0),
            None => self.merge.some(shared, &mut sink),
        }
    }

    fn take_of_one_ring(&mut self, round: &Round) -> Result<usize, TraceError> {
        let (shared, writer) = (&self.agent.shared, &mut self.agent.writer);
        if let Some(Asked::ForgetEvent { next }) = Asked::open(shared) {
            let r = self.drain.forget_event(shared, writer, round.lost, next);
            requests::done(shared);
            return r;
        }
        match round.end {
            _ if round.waits => Ok(0),
            Some(_) => self.drain.all(shared, writer, round.lost),
            None if round.stops => self.drain.by_now(shared, writer),
            None => self.drain.some(shared, writer, round.lost),
        }
    }

    /// Does what the runtime asks for, and puts it into what processes become by exec.
    fn answer_requests(&mut self, round: &Round) {
        self.drain.inputs.answer(&self.agent.shared, &self.members);
        let mut unkept = requests::answer(
            &self.agent.shared,
            &self.members,
            &mut self.keeper,
            &mut self.handed,
            &mut self.outsiders,
            &mut self.native,
            &mut self.agent.warnings,
        );
        self.serve_exec(round.lost, &mut unkept);
        if self.full.is_none() && self.place.is_lost() {
            unkept = Some(self.place.loss());
        }
        if let Some(why) = unkept {
            self.is_full(|| why);
        }
        namespaces::answer(&self.agent.shared);
    }

    /// Puts the runtime into what a process becomes, and the new program into the trace; `unkept`: why that could not be.
    fn serve_exec(&mut self, lost: bool, unkept: &mut Option<String>) {
        let (writer, drain, merge) = (&mut self.agent.writer, &mut self.drain, &mut self.merge);
        let (keeper, images) = (&mut self.keeper, &mut self.images);
        let mut keep = |stopped: &Stopped, shared: &mut SharedSession, n: u64, slot: usize| {
            let mut sink = sink(writer, drain, lost);
            merge
                .others_gone(shared, &mut sink, slot)
                .map_err(|e| e.to_string())?;
            let kept = image::append(stopped, shared, keeper, images, n);
            if let Err(why) = &kept {
                unkept.get_or_insert_with(|| {
                    format!("the program that a process became could not be kept: {why}")
                });
            }
            kept
        };
        let ended = exec::serve(
            &mut self.agent.shared,
            &self.members,
            &self.agent.image,
            &mut keep,
            &mut self.agent.warnings,
        );
        self.agent.uncaptured.extend(ended);
    }

    /// Looks at who takes part unseen, and at what of the session doesn't go on any more.
    fn look_after_all(&mut self, round: &Round, moved: usize) {
        let shared = &self.agent.shared;
        self.strays.look(shared, &self.members);
        self.told.look(shared.session());
        self.outsiders.look_again(shared);
        self.drain.inputs.look(shared, moved > 0);
        if self.agent.keeps_stretch {
            self.drain.inputs.forget(shared);
        }
        let idle = moved == 0 && !round.waits && !round.stops;
        let stuck = self.asleep.look(shared, &self.members, idle);
        let words = self.damage.look(shared, &self.members).or(stuck);
        let rings = self.drain.damage().or(self.merge.damage());
        if let Some(why) = words.or(rings) {
            // Also when it could go on unrecorded: it takes turns still, and finds its way by these words.
            self.is_full(|| damaged(why));
            self.processes
                .end_whoever_maps(&self.agent.shared, &self.members);
        }
    }

    /// When nothing more is recorded the program ends, or goes on unseen.
    fn end_whom_nobody_records(&mut self) {
        if self.full.is_none() {
            return;
        }
        let (shared, processes) = (&self.agent.shared, &mut self.processes);
        match self.agent.on_full {
            OnFull::Stop => processes.end_all(shared, &self.members),
            OnFull::Continue => go_on_unseen(shared, processes, &mut self.drain.census),
        }
    }

    /// Nobody keeps the baton too long; under `order`, nobody waits too long for a processor.
    fn share_the_processors(&mut self) {
        let shared = &self.agent.shared;
        if shared.order().is_some() {
            self.late.look(shared, &self.members);
        }
        if shared.rings().is_none() {
            self.slices.look(shared, &self.members);
        }
    }

    /// How the recording ends, if it does so in this round.
    fn is_over(&mut self, round: &Round) -> Option<Ending> {
        if let Some((status, reason)) = round.end {
            let shared = &self.agent.shared;
            if shared.has_leader() && epochs::is_open(shared.session()) {
                self.is_full(|| "the program was ended before the end of an epoch".into());
            }
            return Some((Some(status), reason));
        }
        if !round.stops || self.full.is_some() {
            return None;
        }
        self.agent.leave();
        let first = self.agent.shared.session().wait_status.load(Acquire);
        let first = (first != 0).then(|| (first - 1) as i32);
        Some((first, EndReason::Stopped))
    }

    fn close_old_frame(&mut self) {
        let gathered = self.agent.writer.gathered();
        if gathered == 0 {
            self.frame_begun = Instant::now();
        } else if self.frame_begun.elapsed() > FRAME_AGE {
            tracing::trace!(gathered, "frame closed");
            if let Err(e) = self.agent.writer.flush_frame() {
                self.full.get_or_insert(e.to_string());
                self.agent.give_up();
            }
            self.frame_begun = Instant::now();
        }
    }
}
