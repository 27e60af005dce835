package h2

import "encoding/binary"

// Frame types (RFC 9113, 6).
const (
	frameData         = 0x0
	frameHeaders      = 0x1
	framePriority     = 0x2
	frameRSTStream    = 0x3
	frameSettings     = 0x4
	framePushPromise  = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindowUpdate = 0x8
	frameContinuation = 0x9

	framePriorityUpdate = 0x10 // RFC 9218
)

// Flags of frames.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// code is an error code (RFC 9113, 7).
type code uint32

const (
	codeNo              code = 0x0
	codeProtocol        code = 0x1
	codeInternal        code = 0x2
	codeFlowControl     code = 0x3
	codeStreamClosed    code = 0x5
	codeFrameSize       code = 0x6
	codeRefusedStream   code = 0x7
	codeCancel          code = 0x8
	codeCompression     code = 0x9
	codeEnhanceYourCalm code = 0xb
)

// Settings (RFC 9113, 6.5.2).
const (
	settingHeaderTableSize = 0x1
	settingEnablePush      = 0x2
	settingMaxStreams      = 0x3
	settingInitialWindow   = 0x4
	settingMaxFrameSize    = 0x5
	settingUnknown         = 0xfeed // receivers ignore it
)

const (
	frameHead = 9 // bytes before a frame's payload
	// maxRead is the largest frame that clients may send: the smallest limit that the
	// RFC allows, so that a frame and its head fit into a small buffer.
	maxRead       = 16 << 10
	defaultWindow = 65535
	firstTable    = 4096 // bytes of each HPACK table at the start (RFC 9113, 6.5.2)
	maxWindow     = 1<<31 - 1
	idMask        = 1<<31 - 1
)

// head is a frame's first nine bytes.
type head struct {
	length int
	kind   byte
	flags  byte
	id     uint32
}

func parseHead(b []byte) head {
	return head{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   b[3], flags: b[4],
		id: binary.BigEndian.Uint32(b[5:]) & idMask,
	}
}

func (h head) has(flag byte) bool { return h.flags&flag != 0 }

// appendHead appends the first nine bytes of a frame.
func appendHead(b []byte, h head) []byte {
	b = append(b, byte(h.length>>16), byte(h.length>>8), byte(h.length), h.kind, h.flags)
	return binary.BigEndian.AppendUint32(b, h.id)
}

// AppendHeaders appends a HEADERS frame with an encoded header block. The block must not
// be longer than a frame may be: 16 KiB always fit.
func AppendHeaders(b []byte, id uint32, block []byte, endStream bool) []byte {
	h := head{length: len(block), kind: frameHeaders, flags: flagEndHeaders, id: id}
	if endStream {
		h.flags |= flagEndStream
	}
	return append(appendHead(b, h), block...)
}

// AppendData appends a body as DATA frames, the last of which ends the stream.
// A frame has up to most bytes of it.
func AppendData(b []byte, id uint32, body []byte, most int) []byte {
	for {
		n := min(len(body), most)
		h := head{length: n, kind: frameData, id: id}
		if n == len(body) {
			h.flags = flagEndStream
		}
		b = append(appendHead(b, h), body[:n]...)
		if body = body[n:]; len(body) == 0 {
			return b
		}
	}
}

func appendWindowUpdate(b []byte, id uint32, n int64) []byte {
	b = appendHead(b, head{length: 4, kind: frameWindowUpdate, id: id})
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendReset(b []byte, id uint32, c code) []byte {
	b = appendHead(b, head{length: 4, kind: frameRSTStream, id: id})
	return binary.BigEndian.AppendUint32(b, uint32(c))
}

func appendGoaway(b []byte, last uint32, c code) []byte {
	b = appendHead(b, head{length: 8, kind: frameGoAway})
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, last), uint32(c))
}

func appendSetting(b []byte, id uint16, value uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, id), value)
}
