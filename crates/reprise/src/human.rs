//! Numbers as people read them: sizes, durations, dates, ends of programs; and tables.

use reprise_abi::names::signal_name;

/// A size: `812 B`, `1.4 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be rounded to 1024 is one of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// A duration: `38 µs`, `4.2 ms`, `1.50 s`, `3 min 7 s`, `2 h 5 min`.
pub fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} µs", ns / 1000),
        1_000_000..=999_999_999 => format!("{:.1} ms", ns as f64 / 1e6),
        _ if seconds < 60 => format!("{:.2} s", ns as f64 / 1e9),
        _ if seconds < 3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A moment, given in nanoseconds of Unix time, by the user's clock: `2026-03-01 17:05`.
pub fn moment(ns: u64) -> String {
    let seconds = (ns / 1_000_000_000) as libc::time_t;
    // SAFETY: `tm` is plain numbers (and a pointer that is only written).
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to what they should.
    if unsafe { libc::localtime_r(&seconds, &mut tm) }.is_null() {
        return "?".into();
    }
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}",
        i64::from(tm.tm_year) + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min
    )
}

/// How a program ended, from its wait status (wait(2)).
pub fn end(wait_status: i32) -> String {
    let signal = wait_status & 0x7f;
    if signal == 0 {
        return format!("exited with {}", wait_status >> 8 & 0xff);
    }
    let core = if wait_status & 0x80 != 0 {
        " (core dumped)"
    } else {
        ""
    };
    match signal_name(signal as u32) {
        Some(name) => format!("killed by {name}{core}"),
        None => format!("killed by signal {signal}{core}"),
    }
}

/// Text from elsewhere, made safe for a terminal and not longer than `limit` characters.
pub fn tame(text: &str, limit: usize) -> String {
    let safe = |c: char| if c.is_control() { '?' } else { c };
    let mut tamed: String = text.chars().take(limit).map(safe).collect();
    if text.chars().count() > limit {
        tamed.pop();
        tamed.push('…');
    }
    tamed
}

/// A command line as a shell would take it.
pub fn command_line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let plain = |w: &str| {
        let safe = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        !w.is_empty() && w.chars().all(safe)
    };
    let quoted = words.into_iter().map(|w| match plain(w) {
        true => w.to_string(),
        false => format!("'{}'", w.replace('\'', "'\\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Rows in columns as wide as they need; columns in `right` are aligned to the right. The last column is never padded.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        let cells = rows.iter().filter_map(|r| r.get(c));
        cells.map(|t| t.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            if c > 0 {
                line.push_str("  ");
            }
            match right.contains(&c) {
                true => line.push_str(&format!("{pad}{cell}")),
                false => line.push_str(&format!("{cell}{pad}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(u64::MAX), "16384.0 PiB");
        assert_eq!(duration(999), "999 ns");
        assert_eq!(duration(38_400), "38 µs");
        assert_eq!(duration(4_200_000), "4.2 ms");
        assert_eq!(duration(1_500_000_000), "1.50 s");
        assert_eq!(duration(187_000_000_000), "3 min 7 s");
        assert_eq!(duration(7_500_000_000_000), "2 h 5 min");
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
    }

    #[test]
    fn ends_of_programs() {
        assert_eq!(end(0), "exited with 0");
        assert_eq!(end(3 << 8), "exited with 3");
        assert_eq!(end(11 | 0x80), "killed by SIGSEGV (core dumped)");
        assert_eq!(end(9), "killed by SIGKILL");
    }

    #[test]
    fn words_are_quoted_for_the_shell_and_tamed_for_the_terminal() {
        assert_eq!(
            command_line(["ls", "-l", "a b", "it's", ""]),
            "ls -l 'a b' 'it'\\''s' ''"
        );
        assert_eq!(tame("a\x1b[31mb", 10), "a?[31mb");
        assert_eq!(tame("abcdef", 4), "abc…");
    }

    #[test]
    fn tables_are_aligned() {
        let rows = [
            vec!["NAME".into(), "N".into()],
            vec!["a".into(), "100".into()],
        ];
        assert_eq!(table(&rows, &[1]), "NAME    N\na     100\n");
    }
}
