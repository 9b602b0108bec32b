//! Copies of the files that the program reads, so that events can refer to them ([`reprise_abi::inputs`]).
//!
//! Before an event with a reference gets into the trace, the range that it names is in the copy, and hashes as what the program has: an agent that is
//! killed loses what it has not written, as ever, and no reference without its bytes. What is copied is hashed on the way, in pieces that stay in the processor's
//! cache; of a file that the store has already, or whose blocks the copy can share (ioctl_ficlone(2)), only the hash is taken, or was when the copy was made
//! ([`Blocks`]).
//!
//! **Invariant:** a copy's bytes are never changed once an event that refers to them is written.
//!
//! The hash decides. When it is another, somebody has changed the file after the program read it (or the program's own threads wrote into the buffer): the event
//! says so ([`INEXACT`]), the user is told, and nothing of that file is referred to any more.

pub(crate) mod mapped;

use crate::asked::Asked;
use crate::blocks::Blocks;
use crate::kept::{stamp, Stamp};
use crate::known_ranges::KnownRanges;
use crate::members::Members;
use crate::requests;
use crate::rights;
use crate::writers::{self, Lease};
use reprise_abi::event::{Event, Kind, Tag};
use reprise_abi::inputs::{
    block_hash, can_refer, cut, input_state, inputs, is_reference, Input, RangeHash, Reference,
    BLOCK, INEXACT, MAX_INPUTS, PIECE, UNKNOWN_HASH,
};
use reprise_launch::SharedSession;
use reprise_trace::manifest::InputFile;
use reprise_trace::{
    beginning, inputs as copies, Ranges, Store, TraceError, BEGINNING_FILE, FILES_DIR,
};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// File systems whose times and content can be relied on, by their magic numbers (statfs(2)): ext4, xfs, btrfs, f2fs, zfs, bcachefs, tmpfs, ramfs, overlayfs,
/// squashfs, erofs, iso9660. Over a network, or in user space, nobody knows when a file changes.
const TRUSTED: [u64; 12] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x0102_1994,
    0x8584_58f6,
    OVERLAYFS,
    0x7371_7368,
    0xe0f5_e1e2,
    0x9660,
];
const OVERLAYFS: u64 = 0x794c_7630;
/// The longest tick of a clock that stamps files (100 Hz), twice; and where times are whole seconds.
const TICK: Duration = Duration::from_millis(20);
const LONG_TICK: Duration = Duration::from_secs(2);
/// Whoever wants to change a file waits no longer than this for references that never come, since their threads were killed: while nothing else comes
/// either, ...
const PATIENCE: Duration = Duration::from_millis(500);
/// ... and in any case.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes of a file that are forgotten together.
const STRETCH: u64 = 4 << 20;
/// Between two looks whether there is something to forget.
const FORGET_EVERY: Duration = Duration::from_millis(500);
/// Between two looks at leases.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// A copy that lacks no more than so many bytes (or a sixteenth) is completed in the end, for later recordings.
const MOST_FILLED: u64 = 1 << 20;
/// Files of which the summary tells.
const MOST_TOLD: usize = 1000;

/// Where in a stamp the file's length is.
const LEN: usize = 2;

/// A version of a file, in a row of the session's table.
struct Row {
    number: u64,
    stamp: Stamp,
    source: File,
    lease: Lease,
    /// The lease keeps everybody from changing it.
    guarded: bool,
    /// Since when somebody waits for it.
    wanted: Option<Wait>,
    name: PathBuf,
    copy: Copy,
    blocks: Blocks,
    ranges: KnownRanges,
    /// References that were handled, as the table counts what was promised.
    handled: u64,
    references: u64,
    bytes_referred: u64,
    /// Mappings show it.
    mapped: bool,
    last_used: u64,
    /// The last event that refers to each [`STRETCH`] of the file, by its number.
    last_events: BTreeMap<u64, u64>,
}

/// A wait for what was promised of a file.
#[derive(Clone, Copy)]
struct Wait {
    begun: Instant,
    /// When the agent wrote something last.
    moved: Instant,
}

impl Wait {
    fn begin() -> Wait {
        let now = Instant::now();
        Wait {
            begun: now,
            moved: now,
        }
    }

    /// The agent has looked at the rings again; or it `copies` what a mapping shows, which takes as long as it takes.
    fn look(&mut self, moved: bool, copies: bool) {
        let now = Instant::now();
        if moved {
            self.moved = now;
        }
        if copies {
            self.begun = now;
        }
    }

    fn is_over(&self) -> bool {
        self.moved.elapsed() > PATIENCE || self.begun.elapsed() > LONGEST
    }
}

/// A copy to which nothing more will refer.
struct Ended {
    number: u64,
    /// Bytes that were copied, and are there.
    bytes: u64,
    /// The last event that refers to it.
    last: u64,
}

/// Where the bytes are.
enum Copy {
    /// The store had them all, or the copy shares the file's blocks.
    Whole(File),
    /// What was read is copied.
    Growing {
        /// The copy.
        file: File,
        /// What of it there is.
        have: Ranges,
    },
}

impl Copy {
    fn bytes(&self) -> u64 {
        match self {
            Copy::Whole(_) => 0,
            Copy::Growing { have, .. } => have.bytes(),
        }
    }
}

/// Keeps what events refer to.
pub struct Inputs {
    dir: PathBuf,
    store: Store,
    rows: Vec<Option<Row>>,
    /// How many copies there were.
    count: u64,
    /// Clock of `last_used`.
    uses: u64,
    piece: Vec<u8>,
    /// Bytes that were copied since somebody asked, less those that were forgotten.
    copied: i64,
    /// When leases were looked at last, and whether somebody waits for one.
    looked: Instant,
    is_wanted: bool,
    /// The row that somebody is about to change, and since when he waits.
    settling: Option<(usize, Wait)>,
    /// Copies to which nothing more will refer.
    ended: Vec<Ended>,
    /// Files that mappings may still show more of.
    given_up: mapped::GivenUp,
    /// May mappings refer to files?
    maps: bool,
    /// What a mapping shows is being copied.
    copying: bool,
    /// Of the flight recorder: which file its beginning was when it was looked at last, and when that was.
    beginning: Option<u64>,
    forgot: Instant,
    /// What the summary tells.
    files: Vec<InputFile>,
    /// Sentences for the user.
    pub warnings: Vec<String>,
}

impl Row {
    /// Is all of the file in the copy, as it was? A beginning that was logged by its bytes, and other gaps, are filled when they are small.
    fn is_wholly_copied(&mut self) -> bool {
        let Copy::Growing { file, have } = &self.copy else {
            return false;
        };
        let len = self.stamp[LEN];
        if len.saturating_sub(have.bytes()) > most_filled(len) {
            return false;
        }
        let mut piece = vec![0; PIECE as usize];
        for (gap, _) in have.cut(0..len).into_iter().filter(|(_, there)| !there) {
            for part in cut(gap.start, gap.end, PIECE) {
                let bytes = &mut piece[..(part.end - part.start) as usize];
                let copied = self.source.read_exact_at(bytes, part.start);
                if copied
                    .and_then(|()| file.write_all_at(bytes, part.start))
                    .is_err()
                {
                    return false;
                }
            }
        }
        // Nothing of it was changed while it was copied.
        is_version(&self.source, &self.stamp)
    }

    /// The hashes of all blocks of a copy that has all of the file; none where too many would have to be taken.
    fn all_blocks(&mut self) -> Option<&[u64]> {
        let Copy::Growing { file, .. } = &self.copy else {
            return self.blocks.all();
        };
        if self.blocks.count_unknown() * BLOCK > most_filled(self.stamp[LEN]) {
            return None;
        }
        let mut block = [0; BLOCK as usize];
        for part in self.blocks.unknown() {
            let bytes = &mut block[..(part.end - part.start) as usize];
            file.read_exact_at(bytes, part.start).ok()?;
            self.blocks.hash(&part, bytes);
        }
        self.blocks.all()
    }
}

/// Is the file this version still?
fn is_version(file: &File, wanted: &Stamp) -> bool {
    file.metadata().is_ok_and(|meta| stamp(&meta) == *wanted)
}

/// Bytes that are copied or hashed in the end at most, of a file of `len`.
fn most_filled(len: u64) -> u64 {
    MOST_FILLED.max(len / 16)
}

impl Inputs {
    /// For the trace in `dir`. `maps`: mappings may refer to files, too. Where the beginning is forgotten they may not: it would go on with their copies.
    pub fn new(store: Store, dir: PathBuf, maps: bool) -> Inputs {
        writers::ignore_signals();
        Inputs {
            dir,
            store,
            rows: (0..MAX_INPUTS).map(|_| None).collect(),
            count: 0,
            uses: 0,
            piece: Vec::new(),
            copied: 0,
            looked: Instant::now(),
            is_wanted: false,
            settling: None,
            ended: Vec::new(),
            given_up: mapped::GivenUp::default(),
            maps,
            copying: false,
            beginning: None,
            forgot: Instant::now(),
            files: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Answers the open request, if it is about files that are read.
    pub fn answer(&mut self, shared: &SharedSession, members: &Members) {
        let q = &shared.session().request;
        match Asked::open(shared) {
            Some(Asked::Refer {
                descriptor,
                process,
                for_mapping,
            }) => {
                // Somebody else's file is nobody's to ask for.
                let pid = process.filter(|pid| members.has(shared, *pid));
                let row = pid.ok_or(libc::EINVAL);
                let row = row.and_then(|pid| self.refer(shared, pid, descriptor, for_mapping));
                q.answer[0].store(row.map_or(0, |row| row as u64 + 1), Relaxed);
                q.status.store(row.err().unwrap_or(0) as u32, Relaxed);
                requests::done(shared);
            }
            // Else it stays open, and what is in the rings is written meanwhile.
            Some(Asked::Settle { row }) if self.settle(shared, row) => {
                q.status.store(0, Relaxed);
                requests::done(shared);
            }
            _ => {}
        }
    }

    /// May the file behind this descriptor be referred to? Its row, or the errno that says not now (`EAGAIN`) or never (`EINVAL`).
    ///
    /// # Errors
    /// These.
    fn refer(
        &mut self,
        shared: &SharedSession,
        pid: u32,
        fd: i32,
        for_mapping: bool,
    ) -> Result<usize, i32> {
        let source = rights::open_descriptor(pid, fd).map_err(|_| libc::EINVAL)?;
        let meta = source.metadata().map_err(|_| libc::EINVAL)?;
        let kind = rustix::fs::fstatfs(&source).map_err(|_| libc::EINVAL)?;
        if !meta.is_file() || !TRUSTED.contains(&(kind.f_type as u64)) {
            return Err(libc::EINVAL);
        }
        if is_young(&meta) {
            return Err(libc::EAGAIN);
        }
        // A content that is kept already costs a mapping nothing.
        if for_mapping && (!self.maps || self.store.has_content_of(&meta)) {
            return Err(libc::EINVAL);
        }
        let wanted = stamp(&meta);
        let table = inputs(shared.session());
        let known = self
            .rows
            .iter()
            .position(|row| row.as_ref().is_some_and(|row| row.stamp == wanted));
        if let Some(row) = known {
            return match table.files[row].state.load(SeqCst) {
                input_state::OPEN => Ok(row),
                _ => Err(libc::EAGAIN),
            };
        }
        let row = self.free_row(shared).ok_or(libc::EAGAIN)?;
        let lease = Lease::take(shared.session(), &source, &meta).ok_or(libc::EAGAIN)?;
        if for_mapping && !lease.is_held() {
            return Err(libc::EINVAL);
        }
        // It may have been changed just before.
        if source.metadata().map_or(true, |now| stamp(&now) != wanted) {
            return Err(libc::EAGAIN);
        }
        let number = self.count + 1;
        let begun = self.begin(number, &source, &meta);
        let (copy, blocks) = begun.map_err(|_| libc::EAGAIN)?;
        let ranges = match copy {
            Copy::Whole(_) => self.store.known_ranges(&meta),
            Copy::Growing { .. } => Vec::new(),
        };
        self.count = number;
        let name = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
        let mappable = self.maps && lease.is_held();
        // What is under an overlay can be changed from below, past the lease.
        let leased = lease.is_held() && kind.f_type as u64 != OVERLAYFS;
        self.rows[row] = Some(Row {
            number,
            stamp: wanted,
            source,
            lease,
            guarded: leased,
            wanted: None,
            name,
            copy,
            blocks,
            ranges: KnownRanges::of(ranges),
            // Who comes too late for the file that was in the row before may still be about to take his promise back.
            handled: table.files[row].promised.load(SeqCst),
            references: 0,
            bytes_referred: 0,
            mapped: false,
            last_used: self.uses,
            last_events: BTreeMap::new(),
        });
        let it = &table.files[row];
        for (to, word) in it.stamp.iter().zip(wanted) {
            to.store(word, Relaxed);
        }
        it.number.store(number as u32, Relaxed);
        it.mappable.store(mappable.into(), Relaxed);
        it.leased.store(leased.into(), Relaxed);
        it.state.store(input_state::OPEN, SeqCst);
        table.used.fetch_max(row as u32 + 1, SeqCst);
        Ok(row)
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(FILES_DIR).join(copies::name(number))
    }

    /// Begins the copy of a file: the one that the store has, one that shares its blocks, or an empty one.
    fn begin(
        &self,
        number: u64,
        source: &File,
        meta: &Metadata,
    ) -> Result<(Copy, Blocks), TraceError> {
        let path = self.path(number);
        let io = |action| {
            let path = &path;
            move |e| TraceError::io(action, path, e)
        };
        let whole = |file: File| {
            let known = self.store.known_blocks(meta, Blocks::count(meta.len()));
            let blocks = Blocks::of(meta.len(), known.unwrap_or_default());
            Ok((Copy::Whole(file), blocks))
        };
        if self.store.known_input_into(meta, &path)? {
            return whole(File::open(&path).map_err(io("open"))?);
        }
        let mut options = File::options();
        let create = options.read(true).write(true).create_new(true).mode(0o600);
        let file = create.open(&path).map_err(io("create"))?;
        if reprise_trace::reflink(source, &file).is_ok() {
            return whole(file);
        }
        // So that no read of it is short.
        file.set_len(meta.len()).map_err(io("write"))?;
        let have = Ranges::default();
        Ok((Copy::Growing { file, have }, Blocks::new(meta.len())))
    }

    /// A row for another file: one that nobody uses, or the one that was not used for longest.
    fn free_row(&mut self, shared: &SharedSession) -> Option<usize> {
        let table = inputs(shared.session());
        if let Some(free) = self.rows.iter().position(Option::is_none) {
            return Some(free);
        }
        let all = self.rows.iter().enumerate();
        let oldest = all.min_by_key(|(_, row)| row.as_ref().map_or(0, |row| row.last_used));
        let (row, _) = oldest?;
        table.files[row].state.store(input_state::CLOSED, SeqCst);
        // Who has promised meanwhile is waited for by whoever asks next.
        self.is_settled(&table.files[row], row).then(|| {
            self.end(row);
            row
        })
    }

    fn is_settled(&self, it: &Input, row: usize) -> bool {
        let promised = it.promised.load(SeqCst);
        // The program can write any number there.
        self.rows[row]
            .as_ref()
            .is_none_or(|row| row.handled >= promised)
    }

    /// A row's file is referred to no more.
    fn end(&mut self, row: usize) {
        let Some(mut row) = self.rows[row].take() else {
            return;
        };
        let path = self.path(row.number);
        if row.references == 0 {
            let _ = std::fs::remove_file(path);
            return;
        }
        let kept = row.copy.bytes();
        let last = row.last_events.values().max().copied();
        self.ended.push(Ended {
            number: row.number,
            bytes: kept,
            last: last.unwrap_or(0),
        });
        let copied = row.is_wholly_copied();
        let whole = copied || matches!(row.copy, Copy::Whole(_));
        if let (true, Copy::Growing { have, .. }) = (copied, &mut row.copy) {
            // Later recordings may have it: it stays as it is.
            have.add(0..row.stamp[LEN]);
        }
        if let (true, Ok(meta)) = (whole, row.source.metadata()) {
            if copied {
                let _ = self.store.offer_input(&meta, &path);
            }
            let same = stamp(&meta) == row.stamp;
            if let (true, Some(sums)) = (same, row.all_blocks()) {
                let _ = self.store.offer_blocks(&meta, sums);
            }
            if let (true, Some(ranges)) = (same, std::mem::take(&mut row.ranges).all()) {
                let _ = self.store.offer_ranges(&meta, &ranges);
            }
        }
        if self.files.len() < MOST_TOLD {
            self.files.push(InputFile {
                number: row.number,
                name: row.name.as_os_str().into(),
                references: row.references,
                bytes_referred: row.bytes_referred,
                bytes_kept: kept,
            });
        }
        if row.mapped {
            self.given_up.add(row);
        }
    }

    /// All files, at the end of the recording.
    pub fn finish(&mut self) -> Vec<InputFile> {
        for row in 0..self.rows.len() {
            self.end(row);
        }
        std::mem::take(&mut self.files)
    }

    /// The file of this row is about to be changed: true as soon as all that was promised of it is kept.
    fn settle(&mut self, shared: &SharedSession, row: usize) -> bool {
        let Some(it) = inputs(shared.session()).files.get(row) else {
            return true;
        };
        it.state.store(input_state::CLOSED, SeqCst);
        let wait = match self.settling {
            Some((settling, wait)) if settling == row => wait,
            _ => Wait::begin(),
        };
        let lost = shared.session().recording_lost.load(SeqCst) != 0;
        let done = lost || self.is_settled(it, row) || wait.is_over();
        self.settling = (!done).then_some((row, wait));
        if let (true, Some(row)) = (done, &mut self.rows[row]) {
            row.lease.give_back(&row.source);
        }
        done
    }

    /// Looks whether somebody outside waits to write one of the files. He may as soon as all that was promised of it is kept.
    /// `moved`: something was taken out of the rings, or written, since the last look.
    pub fn look(&mut self, shared: &SharedSession, moved: bool) {
        if let Some((_, wait)) = &mut self.settling {
            wait.look(moved, self.copying);
        }
        let waits = self.rows.iter_mut().flatten();
        let waits = waits.filter_map(|row| row.wanted.as_mut());
        let copies = self.copying;
        waits.for_each(|wait| wait.look(moved, copies));
        if self.count == 0 || self.looked.elapsed() < LOOK_EVERY {
            return;
        }
        self.looked = Instant::now();
        if shared.session().recording_lost.load(SeqCst) != 0 {
            // Nobody refers to anything any more.
            (0..self.rows.len()).for_each(|row| self.end(row));
        }
        let table = inputs(shared.session());
        self.is_wanted = false;
        for (n, it) in table.files.iter().enumerate() {
            let closed = it.state.load(SeqCst) == input_state::CLOSED;
            let is_due = |row: &&mut Row| closed || row.lease.is_wanted(&row.source);
            let Some(row) = self.rows[n].as_mut().filter(is_due) else {
                continue;
            };
            it.state.store(input_state::CLOSED, SeqCst);
            let wait = *row.wanted.get_or_insert_with(Wait::begin);
            if row.handled >= it.promised.load(SeqCst) {
                // With the row goes the lease.
                self.end(n);
            } else if wait.is_over() {
                row.lease.give_back(&row.source);
            } else {
                self.is_wanted = true;
            }
        }
    }

    /// Of a recording of which only the last stretch is kept: what only forgotten events refer to is forgotten, too.
    pub fn forget(&mut self, shared: &SharedSession) {
        if self.count == 0 || self.forgot.elapsed() < FORGET_EVERY {
            return;
        }
        self.forgot = Instant::now();
        let now = std::fs::metadata(self.dir.join(BEGINNING_FILE)).map(|m| m.ino());
        let now = now.ok();
        if now == self.beginning {
            return;
        }
        // (One that can't be read now is looked at again.)
        if let Ok(Some((_, moment))) = beginning::open(&self.dir) {
            self.beginning = now;
            self.forget_before(shared, moment.event);
        }
    }

    fn forget_before(&mut self, shared: &SharedSession, event: u64) {
        let table = inputs(shared.session());
        for n in 0..self.rows.len() {
            let Some(row) = &mut self.rows[n] else {
                continue;
            };
            row.last_events.retain(|stretch, last| {
                let range = stretch * STRETCH..(stretch + 1) * STRETCH;
                let old = *last < event;
                if let (true, Copy::Growing { file, have }) = (old, &mut row.copy) {
                    if copies::punch(file, range.clone()).is_ok() {
                        row.blocks.forget(range.clone());
                        let before = have.bytes();
                        have.remove(range);
                        self.copied -= (before - have.bytes()) as i64;
                    }
                }
                !old
            });
            if row.references > 0 && row.last_events.is_empty() && !row.mapped {
                table.files[n].state.store(input_state::CLOSED, SeqCst);
                // Else it ends when what was promised meanwhile has come.
                if self.is_settled(&table.files[n], n) {
                    self.end(n);
                }
            }
        }
        let ended = std::mem::take(&mut self.ended).into_iter();
        let (old, young): (Vec<_>, _) = ended.partition(|it| it.last < event);
        self.ended = young;
        for it in old {
            if std::fs::remove_file(self.path(it.number)).is_ok() {
                self.copied -= it.bytes as i64;
            }
        }
    }

    /// Does somebody wait until what is in the rings is kept?
    pub fn is_waited_for(&self) -> bool {
        self.settling.is_some() || self.is_wanted
    }

    /// Before this event gets into the trace, as `number`: what it refers to is copied. Returns the event as it is to be written, where it has to be another.
    ///
    /// # Errors
    /// When there is no room.
    pub fn keep(
        &mut self,
        shared: &SharedSession,
        event: &Event,
        number: u64,
    ) -> Result<Option<Vec<u8>>, TraceError> {
        if !may_refer(event) {
            return Ok(None);
        }
        let (mut changed, mut any) = (None, None);
        for section in event.sections().filter(|s| is_reference(s.tag)) {
            // What is no reference is none of ours: a replay finds that out.
            let Some(r) = Reference::parse(section.bytes) else {
                continue;
            };
            let Some(row) = self.row_of(&r) else {
                // Nobody was told of this number, or its thread was believed dead.
                mark_inexact(&mut changed, event, section.bytes, &r);
                continue;
            };
            any = Some(row);
            if let (Some(row), true) = (&mut self.rows[row], r.len > 0) {
                for stretch in r.offset / STRETCH..=(r.offset + r.len - 1) / STRETCH {
                    row.last_events.insert(stretch, number);
                }
            }
            // The program never had what it sent: the file is what it was, or nobody knows.
            let sent = section.tag == Tag::SentReference;
            match self
                .copy(row, &r)?
                .filter(|_| !sent || self.is_current(row))
            {
                Some(hash) if sent => {
                    put_word(&mut changed, event, section.bytes, 3, hash);
                }
                Some(_) => {}
                None => {
                    self.is_inexact(shared, row);
                    mark_inexact(&mut changed, event, section.bytes, &r);
                }
            }
        }
        // A call with several buffers has promised once.
        if let Some(row) = any {
            self.uses += 1;
            let uses = self.uses;
            let table = inputs(shared.session());
            if let Some(it) = &mut self.rows[row] {
                it.handled += 1;
                it.references += 1;
                it.last_used = uses;
            }
            // Its next reader asks about what it is now. (Of a file with a lease nobody need ask: it is the version that it was.)
            if !self.is_leased(row) && !self.is_current(row) {
                table.files[row].state.store(input_state::CLOSED, SeqCst);
            }
        }
        Ok(changed)
    }

    /// Does the kernel let nobody change the file of this row?
    fn is_leased(&self, row: usize) -> bool {
        self.rows[row]
            .as_ref()
            .is_some_and(|row| row.guarded && row.lease.is_held())
    }

    /// Is the file of this row what it was?
    fn is_current(&self, row: usize) -> bool {
        let row = self.rows[row].as_ref();
        row.is_some_and(|row| is_version(&row.source, &row.stamp))
    }

    /// The bytes that were copied since this was asked last, less those that were forgotten.
    pub fn take_copied(&mut self) -> i64 {
        std::mem::take(&mut self.copied)
    }

    /// Copies what is not there yet; what it hashes as, if that is what the program has read.
    fn copy(&mut self, row: usize, r: &Reference) -> Result<Option<u64>, TraceError> {
        let path = self.path(r.number);
        let piece = &mut self.piece;
        piece.resize(PIECE as usize, 0);
        let Some(row) = &mut self.rows[row] else {
            return Ok(None);
        };
        // No read goes beyond the file's end; a program may say so.
        if r.offset + r.len > row.stamp[LEN] {
            return Ok(None);
        }
        row.bytes_referred += r.len;
        let right = |hash: u64| (r.hash == UNKNOWN_HASH || hash == r.hash).then_some(hash);
        let (mut hash, end) = (RangeHash::new(r.offset), r.offset + r.len);
        let (file, have) = match &mut row.copy {
            Copy::Whole(file) => {
                if let Some(known) = row.ranges.get(r.offset, r.len) {
                    return Ok(right(known));
                }
                for part in cut(r.offset, end, BLOCK) {
                    let known = row.blocks.get(&part);
                    let sum = match known {
                        Some(sum) => sum,
                        // (Through a mapping it would cost twice as much: a fault for each 16 pages, and their end.)
                        None => {
                            let bytes = &mut piece[..(part.end - part.start) as usize];
                            if file.read_exact_at(bytes, part.start).is_err() {
                                return Ok(None);
                            }
                            row.blocks.hash(&part, bytes)
                        }
                    };
                    hash.add_block(sum, part.end - part.start);
                }
                let right = right(hash.finish());
                if let (Some(sum), false) = (right, row.blocks.knows(r.offset..end)) {
                    row.ranges.set(r.offset, r.len, sum);
                }
                return Ok(right);
            }
            Copy::Growing { file, have } => (file, have),
        };
        let (mut new, mut sums) = (Vec::new(), Vec::new());
        for whole in cut(r.offset, end, PIECE) {
            let at = |part: &Range<u64>| {
                (part.start - whole.start) as usize..(part.end - whole.start) as usize
            };
            // What is known was hashed when it was copied.
            if !row.blocks.knows(whole.clone()) {
                for (part, there) in have.cut(whole.clone()) {
                    let from = if there { &*file } else { &row.source };
                    fill(from, &mut piece[at(&part)], part.start);
                    if !there {
                        let put = put(file, &piece[at(&part)], part.start);
                        self.copied += put.map_err(|e| TraceError::io("write", &path, e))? as i64;
                        new.push(part);
                    }
                }
            }
            for part in cut(whole.start, whole.end, BLOCK) {
                let known = row.blocks.get(&part);
                let sum = known.unwrap_or_else(|| block_hash(&piece[at(&part)]));
                hash.add_block(sum, part.end - part.start);
                if known.is_none() {
                    sums.push((part, sum));
                }
            }
        }
        let right = right(hash.finish());
        if right.is_some() {
            new.into_iter().for_each(|part| have.add(part));
            for (part, sum) in sums {
                row.blocks.set(&part, sum);
            }
        }
        if let (Some(sum), false) = (right, row.blocks.knows(r.offset..end)) {
            row.ranges.set(r.offset, r.len, sum);
        }
        Ok(right)
    }

    /// The row of the file that is referred to.
    fn row_of(&self, r: &Reference) -> Option<usize> {
        let is_its = |row: &Option<Row>| row.as_ref().is_some_and(|row| row.number == r.file());
        self.rows.iter().position(is_its)
    }

    /// Tells the user, once.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            reprise_console::say!("{warning}");
            self.warnings.push(warning);
        }
    }

    /// What the program read is not to be had any more.
    fn is_inexact(&mut self, shared: &SharedSession, row: usize) {
        inputs(shared.session()).files[row]
            .state
            .store(input_state::CLOSED, SeqCst);
        if let Some(row) = &self.rows[row] {
            let name = row.name.display();
            let warning = format!(
                "{name} was changed by somebody who is not recorded, right after the program had read it: from there on a replay may not be what happened (--inputs copy records what is read as it is read)"
            );
            self.warn(warning);
        }
    }
}

/// The event says of a reference, whose words are `words`, that its copy is not what was read.
fn mark_inexact(changed: &mut Option<Vec<u8>>, event: &Event, words: &[u8], r: &Reference) {
    put_word(changed, event, words, 0, r.number | INEXACT);
}

/// The event has another word in the reference whose words are `words`.
fn put_word(changed: &mut Option<Vec<u8>>, event: &Event, words: &[u8], n: usize, word: u64) {
    let bytes = changed.get_or_insert_with(|| event.bytes().to_vec());
    let at = words.as_ptr() as usize - event.bytes().as_ptr() as usize + 8 * n;
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Reads all of `to`; zeros where the file is shorter than it was, or can't be read.
fn fill(from: &File, to: &mut [u8], mut at: u64) {
    let mut done = 0;
    while done < to.len() {
        match from.read_at(&mut to[done..], at) {
            Ok(n @ 1..) => {
                done += n;
                at += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            _ => {
                to[done..].fill(0);
                return;
            }
        }
    }
}

/// Writes what isn't there yet of a copy; how much that was. Zeros are there: holes stay holes.
fn put(copy: &File, bytes: &[u8], at: u64) -> std::io::Result<usize> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    copy.write_all_at(bytes, at).map(|()| bytes.len())
}

/// Was the file changed within a tick of its file system's clock? Then it may change again, and its times would not tell.
fn is_young(meta: &Metadata) -> bool {
    let tick = match meta.ctime_nsec() {
        0 => LONG_TICK,
        _ => TICK,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let changed = Duration::new(meta.ctime().max(0) as u64, meta.ctime_nsec() as u32);
    now.is_ok_and(|now| now < changed + tick)
}

/// Is this the end of a call that reads, or moves bytes?
fn may_refer(event: &Event) -> bool {
    matches!(event.kind, Kind::Syscall | Kind::Exit) && can_refer(event.header.detail.into())
}
