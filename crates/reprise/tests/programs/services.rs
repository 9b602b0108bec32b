//! Programs that live in the background, or behind another server, and are ended in their own way: screen's sessions, PHP's pool of processes.

use crate::common;

use common::{
    assert_same, connect, free_port, system_program, Guest, Recording, Running, Workplace,
};
use std::path::Path;
use std::process::Command;

/// A session without a terminal of its own is told what to run by another `screen`, through a fifo or socket, and to quit.
const SCREEN: &str = r#"
set -u
export SCREENDIR=$PWD/screens
mkdir -m 700 "$SCREENDIR"
printf 'zombie kr\n' >screenrc
until_it() { until "$@"; do read -t 0.05 -u 9 _ || :; done; }
there() { screen -ls | grep -q recorded; }
gone() { ! there; }
# A pipe that nobody writes to: waiting with a limit, without a process.
mkfifo nobody
exec 9<>nobody
screen -c screenrc -dmS recorded sh
until_it there
screen -S recorded -p 0 -X stuff 'echo $((6 * 7)) >answer.new && mv answer.new answer
'
until_it test -s answer
cat answer
screen -S recorded -X quit
until_it gone
echo gone
"#;

#[test]
fn screen_is_commanded_from_outside_its_session() {
    system_program("screen");
    let place = Workplace::new();
    let guest = Guest::program(system_program("bash")).args(["-c", SCREEN]);
    let native = guest.native(&place);
    assert_eq!(native.text(), "42\ngone\n", "{}", native.describe());
    for engine in ["serial", "order"] {
        let recording = place.record_with(&guest, &["--engine", engine]);
        assert_same(&native, &recording.run);
        assert_same(&recording.run, &place.replay(&recording.dir));
        let verify = place.verify(&recording.dir);
        assert!(verify.status.success(), "{}", verify.describe());
    }
}

/// PHP's process manager with two workers.
fn php(data: &Path, port: u16) -> Guest {
    let at = data.display();
    let conf = data.join("fpm.conf");
    let text = format!(
        "[global]\nerror_log = {at}/log\npid = {at}/pid\ndaemonize = no\n\
         [www]\nuser = nobody\ngroup = nogroup\nlisten = 127.0.0.1:{port}\npm = static\npm.max_children = 2\n"
    );
    std::fs::write(&conf, text).expect("a configuration");
    let page = "<?php echo 'answer ', 6 * 7, ' ', strlen(str_repeat('x', (int)$_SERVER['SIZE'])), \"\\n\";";
    std::fs::write(data.join("page.php"), page).expect("a page");
    let conf = conf.into_os_string();
    Guest::program(php_fpm()).args(["-n".into(), "-R".into(), "-y".into(), conf])
}

/// Debian names it by PHP's version.
fn php_fpm() -> std::path::PathBuf {
    let versions = std::fs::read_dir("/usr/sbin").expect("/usr/sbin");
    let found = versions.flatten().map(|e| e.path()).find(|p| {
        p.file_name()
            .is_some_and(|n| n.to_string_lossy().starts_with("php-fpm"))
    });
    found.expect("php-fpm is not installed (scripts/setup-tests.sh installs it)")
}

/// SIGQUIT to the recorder, as a container's STOPSIGNAL sends it: the pool ends gracefully, with 0.
#[test]
fn a_pool_of_php_is_stopped_gracefully_through_its_recorder() {
    for engine in ["serial", "order"] {
        let place = Workplace::new();
        let (data, port) = (place.fresh_dir("data"), free_port());
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        for dir in [place.path(), &data] {
            std::fs::set_permissions(dir, Clone::clone(&readable)).expect("chmod");
        }
        let guest = php(&data, port);
        let dir = place.fresh("trace");
        let flags = ["--engine", engine];
        let mut server = Running::start(&mut place.record_command(&guest, &flags, &dir), None);
        drop(connect(&mut server, port));
        for size in ["1", "1000", "300000"] {
            let address = format!("127.0.0.1:{port}");
            let client = Command::new(system_program("cgi-fcgi"))
                .args(["-bind", "-connect", &address])
                .env("SCRIPT_FILENAME", data.join("page.php"))
                .envs([("REQUEST_METHOD", "GET"), ("SIZE", size)])
                .output()
                .expect("cgi-fcgi");
            let said = String::from_utf8_lossy(&client.stdout);
            let wanted = format!("answer 42 {size}\n");
            assert!(said.ends_with(&wanted), "{said}");
        }
        // SAFETY: a signal to a process of ours, which hands it on.
        unsafe { libc::kill(server.pid(), libc::SIGQUIT) };
        let run = server.finish();
        assert!(guest.outcome.fits(run.status), "{}", run.describe());
        let log = std::fs::read_to_string(data.join("log")).expect("its log");
        assert!(
            log.contains("Finishing") || log.contains("exiting, bye-bye"),
            "{log}"
        );
        let recording = Recording { run, dir };
        assert_same(&recording.run, &place.replay(&recording.dir));
        let verify = place.verify(&recording.dir);
        assert!(verify.status.success(), "{}", verify.describe());
    }
}
