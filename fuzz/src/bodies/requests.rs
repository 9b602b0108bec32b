//! See `fuzz_targets/requests.rs`.

use super::bytes::Bytes;
use reprise_abi::event::{section_len, EventHeader, Kind, HEADER_LEN};
use reprise_abi::layout::{MAX_SLOTS, RING_SIZE};
use reprise_abi::order::{ring_offset, OrderHead, ENTRY_LEN};
use reprise_abi::ring::RingControl;
use reprise_abi::session::{
    RequestBox, Session, Slot, MAX_PROCESSES, SESSION_LEN, WINDOW_LEN, WINDOW_OFFSET,
};
use reprise_agent::asked::Asked;
use reprise_agent::drain::Drain;
use reprise_agent::inputs::Inputs;
use reprise_agent::kept::Keeper;
use reprise_agent::members::Members;
use reprise_agent::merge::{presses, Merge, Sink};
use reprise_agent::native::NativeCpuid;
use reprise_agent::{namespaces, requests as answers, Outsiders};
use reprise_launch::shared::{ORDER_OFFSET, RING_OFFSET};
use reprise_launch::SharedSession;
use reprise_trace::{Census, Reader, Store, Tail, Writer};
use std::fs::File;
use std::mem::{offset_of, size_of};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;

/// Bytes of a slot's ring: as many as with `record --keep`, with which not all slots have one.
const SLOT_RING: u64 = reprise_abi::order::CRASH_RING;
/// Slots and processes that the program writes to.
const USED: u64 = 4;

/// Writes to a session's memory as a program could, lets the agent look at it in between, and reads what came into the trace.
pub fn requests(data: &[u8]) {
    let mut data = Bytes(data);
    pure(data.u32(), [data.u64(), data.u64(), data.u64()]);
    let mut shared = SharedSession::create().expect("a session");
    let ordered = data.u8() % 2 == 0;
    if ordered {
        shared.add_order(SLOT_RING).expect("memory for rings");
    }
    let scratch = super::scratch();
    let (trace, store) = (scratch.path().join("trace"), scratch.path().join("store"));
    std::fs::create_dir(&trace).expect("a directory");
    let mut writer = Writer::create(&trace).expect("a stream");
    let store = Store::open(&store).expect("a store");
    let mut agent = Agent {
        keeper: Keeper::new(store.clone(), trace.clone()),
        drain: Drain::new(Census::new(1), Inputs::new(store, trace.clone(), true)),
        merge: Merge::new(),
        census: Census::new(1),
        members: Members::default(),
        handed: Vec::new(),
        outsiders: Outsiders::new(),
        native: NativeCpuid::default(),
        warnings: Vec::new(),
    };
    while !data.0.is_empty() {
        match data.u8() {
            what @ 0..=199 => scribble(&shared, ordered, what, &mut data),
            what => agent.look(&shared, ordered, what, &mut data, &mut writer),
        }
    }
    agent.look(&shared, ordered, 200, &mut data, &mut writer);
    agent.merge.void_stamps(&shared);
    agent.census.missing();
    let stats = writer.finish().expect("a stream");
    // Nothing but whole events has come into the trace.
    let mut reader = Reader::open(&trace).expect("a stream");
    assert_eq!(reader.tail(), &Tail::Complete);
    let read = reader.check().expect("a good stream");
    assert_eq!(read.events, stats.events);
}

/// A request is understood, or it isn't.
fn pure(kind: u32, args: [u64; 3]) {
    let id = |id: u32, word: u64| u64::from(id) == word;
    match Asked::of(kind, args) {
        Some(Asked::HandFile { len, .. }) => assert!(len <= WINDOW_LEN),
        Some(Asked::Exec { who, slot }) => {
            assert!(slot.is_none_or(|slot| slot < MAX_SLOTS && slot as u64 == args[2]));
            assert!(who.is_none_or(|(pid, tid)| id(pid, args[1]) && id(tid, args[0])));
        }
        Some(Asked::Find { number, .. }) => assert!(number < MAX_PROCESSES),
        Some(Asked::KeepFile { process, .. }) => assert!(process.is_none_or(|p| id(p, args[1]))),
        Some(Asked::NativeCpuid { process, .. }) => assert!(process.is_none_or(|p| id(p, args[0]))),
        Some(Asked::ForgetEvent { .. } | Asked::Refer { .. } | Asked::Settle { .. }) | None => {}
    }
}

/// Writes bytes at one of the places that the agent looks at.
fn scribble(shared: &SharedSession, ordered: bool, what: u8, data: &mut Bytes) {
    let n = u64::from(data.u8()) % USED;
    let request = offset_of!(Session, request) as u64;
    let slot = (SESSION_LEN + n as usize * size_of::<Slot>()) as u64;
    let process = offset_of!(Session, processes) as u64;
    let process = process + n * size_of::<reprise_abi::session::Process>() as u64;
    let slot_ring = offset_of!(OrderHead, rings) as u64 + n * size_of::<RingControl>() as u64;
    let (at, len) = match what % 16 {
        0 | 1 => (request, size_of::<RequestBox>()),
        2 => (WINDOW_OFFSET as u64, 64),
        3 => (slot, size_of::<Slot>()),
        4 => (process, size_of::<reprise_abi::session::Process>()),
        5 => (offset_of!(Session, schedule_lock) as u64, 64),
        6 => (offset_of!(Session, ring) as u64, size_of::<RingControl>()),
        // Bytes, and that they are there.
        7 | 8 => {
            let head = offset_of!(Session, ring) + offset_of!(RingControl, head);
            let bytes = written(n, false, data);
            return append(shared, head as u64, RING_OFFSET, RING_SIZE, &bytes);
        }
        _ if !ordered => return,
        9 | 10 => {
            let head = ORDER_OFFSET + slot_ring + offset_of!(RingControl, head) as u64;
            let ring = ORDER_OFFSET + ring_offset(n as usize, SLOT_RING);
            let news = ORDER_OFFSET + offset_of!(OrderHead, news) as u64;
            write(shared, news, &[1 << n]);
            return append(
                shared,
                head,
                ring,
                SLOT_RING,
                &written(n, what % 2 == 0, data),
            );
        }
        11 => (ORDER_OFFSET + slot_ring, size_of::<RingControl>()),
        12 => (ORDER_OFFSET + offset_of!(OrderHead, ring_size) as u64, 16),
        13 => (
            ORDER_OFFSET + offset_of!(OrderHead, news) as u64,
            MAX_SLOTS / 8,
        ),
        14 => (ORDER_OFFSET + offset_of!(OrderHead, shards) as u64, 128),
        _ => (ORDER_OFFSET, 64),
    };
    let from = usize::from(data.u16()) % len;
    let most = (len - from).min(1 + usize::from(what / 16) * 8);
    let bytes = data.take(most);
    write(shared, at + from as u64, bytes);
}

/// What a thread writes to its ring: entries, an event, or anything.
fn written(slot: u64, entries: bool, data: &mut Bytes) -> Vec<u8> {
    let how = data.u8();
    let args = usize::from(data.u8()) % 10;
    let head = EventHeader {
        len: (HEADER_LEN + 8 * args) as u32,
        kind: 1 + how % Kind::ALL.len() as u8,
        nargs: args as u8,
        slot: slot as u16,
        detail: data.u16().into(),
        flags: data.u32(),
        value: i64::from(data.u32() as i32),
        input_hash: 0,
    };
    match how >> 6 {
        0 => data.take(args * 200).to_vec(),
        1 if entries => data.take(args * ENTRY_LEN).to_vec(),
        // Sections.
        1 => {
            let mut event = head.to_bytes().to_vec();
            event.extend((0..args).flat_map(|_| data.u64().to_le_bytes()));
            let len = usize::from(data.u8());
            event.extend_from_slice(&data.u64().to_le_bytes());
            event.extend_from_slice(&(len as u32).to_le_bytes());
            event.extend_from_slice(&(1 + u32::from(data.u8()) % 12).to_le_bytes());
            event.extend_from_slice(data.take(len));
            event.resize(HEADER_LEN + 8 * args + section_len(len), 0);
            let all = event.len() as u32;
            event[..4].copy_from_slice(&all.to_le_bytes());
            event
        }
        _ => {
            let mut event = head.to_bytes().to_vec();
            event.extend((0..args).flat_map(|_| data.u64().to_le_bytes()));
            event
        }
    }
}

/// Appends bytes to a ring.
fn append(shared: &SharedSession, head_at: u64, ring: u64, size: u64, bytes: &[u8]) {
    let mut word = [0; 8];
    memory(shared, |file| file.read_exact_at(&mut word, head_at)).expect("the session's memory");
    let head = u64::from_le_bytes(word);
    let (at, bytes) = (
        head % size,
        &bytes[..bytes.len().min((size - head % size) as usize)],
    );
    write(shared, ring + at, bytes);
    let head = head.wrapping_add(bytes.len() as u64);
    write(shared, head_at, &head.to_le_bytes());
}

fn write(shared: &SharedSession, at: u64, bytes: &[u8]) {
    memory(shared, |file| file.write_all_at(bytes, at)).expect("the session's memory");
}

/// The session's memory as a file, as another process may write it.
fn memory<T>(shared: &SharedSession, does: impl FnOnce(&File) -> T) -> T {
    // SAFETY: open for as long as the session is.
    let fd = unsafe { BorrowedFd::borrow_raw(shared.fd()) };
    let file = File::from(fd.try_clone_to_owned().expect("a descriptor"));
    does(&file)
}

/// What an agent has.
struct Agent {
    keeper: Keeper,
    drain: Drain,
    merge: Merge,
    census: Census,
    members: Members,
    handed: Vec<u8>,
    outsiders: Outsiders,
    native: NativeCpuid,
    warnings: Vec<String>,
}

impl Agent {
    /// Does one of the things that an agent does again and again.
    fn look(
        &mut self,
        shared: &SharedSession,
        ordered: bool,
        what: u8,
        data: &mut Bytes,
        writer: &mut Writer,
    ) {
        let discard = what >= 248;
        if what % 8 == 7 || what % 8 > 4 && !ordered {
            return self.answer(shared, ordered, discard, writer);
        }
        if !ordered {
            match what % 8 {
                0 | 1 => drop(self.drain.all(shared, writer, discard)),
                2 | 3 => drop(self.drain.some(shared, writer, discard)),
                _ => drop(self.drain.by_now(shared, writer)),
            }
            presses(shared);
            return;
        }
        let merged = Sink {
            writer,
            census: &mut self.census,
            inputs: &mut self.drain.inputs,
            discard,
        };
        match what % 8 {
            0 | 1 => drop(self.merge.all(shared, &mut { merged })),
            2 | 3 => drop(self.merge.some(shared, &mut { merged })),
            4 => drop(self.merge.by_now(shared, &mut { merged })),
            5 => {
                let (n, status) = (usize::from(data.u8()) % USED as usize, data.u8());
                let status = (status > 0).then_some(i32::from(status));
                drop(self.merge.reap(shared, &mut { merged }, n, status));
            }
            _ => {
                let slot = usize::from(data.u16());
                drop(self.merge.others_gone(shared, &mut { merged }, slot));
            }
        }
        presses(shared);
    }

    fn answer(&mut self, shared: &SharedSession, ordered: bool, lost: bool, writer: &mut Writer) {
        match Asked::open(shared) {
            // No file of the fuzzer's own.
            Some(Asked::KeepFile { process, .. } | Asked::Refer { process, .. })
                if process == Some(std::process::id()) =>
            {
                return
            }
            Some(Asked::ForgetEvent { next }) if !ordered => {
                drop(self.drain.forget_event(shared, writer, lost, next));
                return;
            }
            _ => {}
        }
        self.drain.inputs.answer(shared, &self.members);
        let _ = answers::answer(
            shared,
            &self.members,
            &mut self.keeper,
            &mut self.handed,
            &mut self.outsiders,
            &mut self.native,
            &mut self.warnings,
        );
        namespaces::answer(shared);
        answers::refuse(shared);
    }
}
