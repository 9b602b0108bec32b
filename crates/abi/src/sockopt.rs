//! Socket options and control messages: their names, and the options that can't be recorded.

use crate::names::errno::{ENOPROTOOPT, EOPNOTSUPP};
use crate::syscalls::{flag_name, flags};

/// getsockopt and setsockopt level of sockets in general.
pub const SOL_SOCKET: u32 = 1;
/// Level of IPv4.
pub const SOL_IP: u32 = 0;
/// Level of TCP.
pub const SOL_TCP: u32 = 6;
/// Level of UDP.
pub const SOL_UDP: u32 = 17;
/// Level of IPv6.
pub const SOL_IPV6: u32 = 41;
/// Level of packet sockets.
pub const SOL_PACKET: u32 = 263;
/// Level of netlink sockets.
pub const SOL_NETLINK: u32 = 270;
/// Level of AF_XDP sockets.
pub const SOL_XDP: u32 = 283;

/// Control message of [`SOL_SOCKET`]: descriptors come or go with the message.
pub const SCM_RIGHTS: u32 = 1;
/// Control message of [`SOL_SOCKET`]: pid, uid and gid of the sender.
pub const SCM_CREDENTIALS: u32 = 2;
/// Control message of [`SOL_SOCKET`]: a pidfd of the sender.
pub const SCM_PIDFD: u32 = 4;

const SO_ZEROCOPY: u32 = 60;
const TCP_ZEROCOPY_RECEIVE: u32 = 35;
const PACKET_RX_RING: u32 = 5;
const PACKET_TX_RING: u32 = 13;

/// The errno with which an option must be refused, for setting as well as for asking.
///
/// Rings are mapped memory that the kernel fills by itself; zero-copy lends pages to the kernel for longer than the call, while
/// the runtime's scratch memory, from which it sends, is used again at once. Programs fall back to ordinary calls.
pub fn refused(level: u64, option: u64) -> Option<i32> {
    match (level as u32, option as u32) {
        (SOL_SOCKET, SO_ZEROCOPY) => Some(EOPNOTSUPP),
        (SOL_TCP, TCP_ZEROCOPY_RECEIVE) => Some(ENOPROTOOPT),
        (SOL_PACKET, PACKET_RX_RING | PACKET_TX_RING) => Some(ENOPROTOOPT),
        // AF_XDP is nothing but rings.
        (SOL_XDP, _) => Some(ENOPROTOOPT),
        _ => None,
    }
}

/// Does an option's value hold pointers to memory that the kernel writes? Tables of netfilter are exchanged with the counters of the
/// old one, and bridges' tables are asked for by a structure that names the place for them.
pub fn holds_pointers(level: u64, option: u64) -> bool {
    /// IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE.
    const IP_TABLES: u32 = 64;
    /// ARPT_SO_SET_REPLACE.
    const ARP_TABLES: u32 = 96;
    /// EBT_SO_SET_ENTRIES, EBT_SO_GET_INFO and those behind them.
    const BRIDGE_TABLES: core::ops::RangeInclusive<u32> = 128..=131;
    match (level as u32, option as u32) {
        (SOL_IP | SOL_IPV6, IP_TABLES) | (SOL_IP, ARP_TABLES) => true,
        (SOL_IP, option) => BRIDGE_TABLES.contains(&option),
        _ => false,
    }
}

/// The name of an option of a level.
pub fn option_name(level: u64, option: u64) -> Option<&'static str> {
    let list = match level as u32 {
        SOL_SOCKET => flags::SO,
        SOL_IP => flags::IP,
        SOL_TCP => flags::TCP,
        SOL_UDP => flags::UDP,
        SOL_IPV6 => flags::IPV6,
        SOL_PACKET => flags::PACKET,
        SOL_NETLINK => flags::NETLINK,
        _ => return None,
    };
    flag_name(list, option as u32 as u64)
}

/// The name of a type of control message (cmsg(3)) of a level.
pub fn control_name(level: u64, kind: u64) -> Option<&'static str> {
    let kind = kind as u32 as u64;
    match level as u32 {
        SOL_SOCKET => flag_name(flags::SCM, kind),
        // Elsewhere the type is the number of the option that asked for it.
        _ => option_name(level, kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_and_zero_copy_are_refused_and_nothing_else() {
        assert_eq!(refused(263, 5), Some(92));
        assert_eq!(refused(6, 35), Some(92));
        assert_eq!(refused(1, 60), Some(95));
        assert_eq!(refused(283, 1), Some(92));
        assert_eq!(refused(1, 2), None);
        assert_eq!(refused(6, 1), None);
        assert_eq!(refused(263, 18), None);
    }

    #[test]
    fn tables_of_netfilter_name_further_memory() {
        assert!(holds_pointers(0, 64) && holds_pointers(41, 64));
        assert!(holds_pointers(0, 96) && holds_pointers(0, 129));
        assert!(!holds_pointers(1, 64) && !holds_pointers(6, 96));
        assert!(!holds_pointers(0, 65));
    }

    #[test]
    fn options_have_names_at_their_level() {
        assert_eq!(option_name(1, 2), Some("SO_REUSEADDR"));
        assert_eq!(option_name(6, 1), Some("TCP_NODELAY"));
        assert_eq!(option_name(41, 26), Some("IPV6_V6ONLY"));
        assert_eq!(option_name(999, 1), None);
        assert_eq!(control_name(1, 1), Some("SCM_RIGHTS"));
        assert_eq!(control_name(0, 8), Some("IP_PKTINFO"));
    }
}
