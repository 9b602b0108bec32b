# Perl: fork, pipes, signals with local handlers, alarms around a wait, sockets with select, sprintf and sort, eval and die.
# run: 4
use strict;
use warnings;
use IO::Handle;
use IO::Select;
use POSIX qw(:sys_wait_h);
use Socket;
use Time::HiRes qw(setitimer ITIMER_REAL);

my $children = shift // 4;
STDOUT->autoflush(1);

# Each child answers through a pipe; they end in any order.
my (%pipes, %answers);
for my $i (1 .. $children) {
    pipe(my $read, my $write) or die;
    my $pid = fork() // die;
    if ($pid == 0) {
        print $write "$i ", $i**3, "\n";
        close $write;
        POSIX::_exit($i);
    }
    close $write;
    $pipes{$pid} = $read;
}
while ((my $pid = wait()) > 0) {
    my ($i, $cube) = split ' ', readline($pipes{$pid});
    die unless $? >> 8 == $i && $cube == $i**3;
    $answers{$i}++;
}
print "answers: @{[sort keys %answers]}\n";

# A signal in the middle of a read, with a handler that dies out of it.
pipe(my $quiet, my $keep) or die;
my $why = eval {
    # Again and again: the first one may come just before the read.
    local $SIG{ALRM} = sub { setitimer(ITIMER_REAL, 0); die "time is over\n" };
    setitimer(ITIMER_REAL, 0.002, 0.002);
    sysread $quiet, my $nothing, 1;
    'read';
} // $@;
print "ended: $why";
my $caught = 0;
$SIG{USR1} = sub { $caught++ };
kill 'USR1', $$ for 1 .. 5;
die unless $caught == 5;

# Two processes and a socket pair, through select.
socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
my $pid = fork() // die;
if ($pid == 0) {
    close $ours;
    $theirs->autoflush(1);
    while (my $line = readline $theirs) {
        print $theirs scalar reverse(substr $line, 0, -1), "\n";
    }
    POSIX::_exit(0);
}
close $theirs;
$ours->autoflush(1);
my $select = IO::Select->new($ours);
for my $word (qw(one three seventeen)) {
    print $ours "$word\n";
    $select->can_read;
    chomp(my $answer = readline $ours);
    die $answer unless $answer eq reverse $word;
}
shutdown $ours, 1;
waitpid $pid, 0;
die unless WIFEXITED($?) && WEXITSTATUS($?) == 0;

# Other programs, and a child that is killed.
my $sum = `seq 100 | awk '{s += \$1} END {print s}'`;
die unless $sum == 5050 && $? == 0;
die unless system('sh', '-c', 'exit 9') >> 8 == 9 && system('kill -TERM $$') == 15;
open(my $sort, '|-', 'sort -r') or die;
print $sort "$_\n" for qw(b c a);
close $sort;
my %table = map { $_ => 1 } 'a' .. 'z';
print 'order ', unpack('%32C*', join '', map { $_ x ord } keys %table), " process $$\n";
