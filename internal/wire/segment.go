//go:build linux

package wire

import (
	"encoding/binary"
	"net/netip"
)

// flow is a connection: the two ends of it, whichever of them a packet comes from.
type flow struct{ near, far netip.AddrPort }

// segment is what the middle reads of a packet.
type segment struct {
	flow    flow
	fromFar bool
	tcp     bool
	opens   bool // it is the first one of a connection
	// Of TCP, for the answer to it.
	source, target netip.AddrPort
	sequence, ack  uint32
	flags          byte
	length         int // of what it carries
}

const (
	flagFIN = 1 << iota
	flagSYN
	flagRST
	_
	flagACK
)

const (
	protocolTCP = 6
	headerTCP   = 20
	headerIPv6  = 40
)

// read takes a packet of IPv4 or IPv6 apart; ok is false for one that is neither, or cut.
func read(b []byte) (s segment, ok bool) {
	var protocol byte
	var source, target netip.Addr
	var inside []byte
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		header := int(b[0]&15) * 4
		total := int(binary.BigEndian.Uint16(b[2:]))
		if header < 20 || total < header || total > len(b) {
			return s, false
		}
		protocol, inside = b[9], b[header:total]
		source, target = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case len(b) >= headerIPv6 && b[0]>>4 == 6:
		total := headerIPv6 + int(binary.BigEndian.Uint16(b[4:]))
		if total > len(b) {
			return s, false
		}
		protocol, inside = b[6], b[headerIPv6:total]
		source, target = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	default:
		return s, false
	}
	var ports [2]uint16
	if s.tcp = protocol == protocolTCP && len(inside) >= headerTCP; s.tcp {
		ports = [2]uint16{binary.BigEndian.Uint16(inside), binary.BigEndian.Uint16(inside[2:])}
		s.sequence, s.ack, s.flags = binary.BigEndian.Uint32(inside[4:]), binary.BigEndian.Uint32(inside[8:]), inside[13]
		s.length = len(inside) - int(inside[12]>>4)*4
		s.opens = s.flags&(flagSYN|flagACK) == flagSYN
	}
	s.source, s.target = netip.AddrPortFrom(source, ports[0]), netip.AddrPortFrom(target, ports[1])
	s.flow = flow{s.source, s.target}
	if s.fromFar = source != Near && source != Near6; s.fromFar {
		s.flow = flow{s.target, s.source}
	}
	return s, true
}

// reset is the answer of RFC 9293 section 3.5.2 to a segment of a connection that is not known,
// from the end that the segment was sent to; nil for a reset, which gets no answer.
func (s segment) reset() []byte {
	if s.flags&flagRST != 0 {
		return nil
	}
	tcp := make([]byte, headerTCP)
	binary.BigEndian.PutUint16(tcp, s.target.Port())
	binary.BigEndian.PutUint16(tcp[2:], s.source.Port())
	tcp[12], tcp[13] = headerTCP/4<<4, flagRST
	if s.flags&flagACK != 0 {
		binary.BigEndian.PutUint32(tcp[4:], s.ack)
	} else {
		length := s.length
		if s.flags&(flagSYN|flagFIN) != 0 {
			length++
		}
		binary.BigEndian.PutUint32(tcp[8:], s.sequence+uint32(length))
		tcp[13] |= flagACK
	}
	from, to := s.target.Addr().AsSlice(), s.source.Addr().AsSlice()
	pseudo := append(append(append([]byte{}, from...), to...), 0, protocolTCP, 0, headerTCP)
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	if s.source.Addr().Is4() {
		ip := make([]byte, 20, 20+headerTCP)
		ip[0], ip[8], ip[9] = 4<<4|5, 64, protocolTCP
		binary.BigEndian.PutUint16(ip[2:], 20+headerTCP)
		copy(ip[12:], from)
		copy(ip[16:], to)
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		return append(ip, tcp...)
	}
	ip := make([]byte, headerIPv6, headerIPv6+headerTCP)
	ip[0], ip[5], ip[6], ip[7] = 6<<4, headerTCP, protocolTCP, 64
	copy(ip[8:], from)
	copy(ip[24:], to)
	return append(ip, tcp...)
}

// checksum is the Internet's (RFC 1071), of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
