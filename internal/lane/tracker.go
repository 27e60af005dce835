package lane

import "millrace/internal/wire/message"

import "bytes"

// maxHeadSoFar is how much of an incomplete head the tracker keeps. net/http takes less, unless limits.header_bytes says more.
const maxHeadSoFar = 1 << 20

// tracker follows the framing of the requests that go to net/http, to know when net/http
// has read exactly one of them: only then may the lane read the next. It sees every byte
// that is passed on. Where it is not certain how long a request is, that is the last one
// of its connection; one whose framing contradicts itself is refused (judge). A mistake
// here would be request smuggling (RFC 9112, 11.2): the lane would take for a request what
// net/http takes for the middle of another one.
type tracker struct {
	headSoFar  []byte // what was passed on of an incomplete head
	body       int64  // bytes of the request's body that are still to be passed on
	chunks     chunks // where a chunked body stands
	chunked    bool
	done       bool // the head is complete
	lost       bool // the length of what was passed on is not certain, and never will be
	lostBefore bool // lost before this request: it may begin anywhere
	fault      fault
}

// fault is the text of the answer to a request that is refused for its framing.
type fault string

// Framing that RFC 9112 calls faulty (6.1, 6.3): two servers that go by different fields
// would see different requests behind it.
const (
	faultBoth    fault = "A request with both Content-Length and Transfer-Encoding is refused (RFC 9112, 6.1)."
	faultOld     fault = "A request in HTTP/1.0 with Transfer-Encoding is refused (RFC 9112, 6.1)."
	faultLengths fault = "A request with more than one Content-Length is refused (RFC 9112, 6.3)."
	faultFold    fault = "A folded header line is refused (RFC 9112, 5.2)."
	faultBefore  fault = "Where the request before this one ended is not certain."
	faultLong    fault = "The request's header is larger than this server accepts."
)

// clean reports whether nothing was passed on since the last reset.
func (t *tracker) clean() bool { return !t.lost && !t.done && len(t.headSoFar) == 0 }

// exact reports whether one whole request was passed on, and nothing else.
func (t *tracker) exact() bool { return !t.lost && t.done && t.body == 0 && !t.chunked }

// reset is called when net/http has answered and waits for the next request.
func (t *tracker) reset() {
	if !t.exact() {
		t.lost, t.lostBefore = true, true
	}
	t.done, t.headSoFar, t.fault = false, nil, ""
}

// judge is called when net/http has read a request's head. It reports whether
// the request must be the last of its connection, and what is wrong with it.
func (t *tracker) judge() (last bool, f fault) {
	if !t.done {
		t.lost = true // net/http found an end of the head where the tracker found none
	}
	if t.lost && t.fault == "" {
		t.fault = doubtful(t.headSoFar)
	}
	if t.lostBefore {
		t.fault = faultBefore
	}
	t.done, t.headSoFar = true, nil
	return t.lost || t.fault != "", t.fault
}

// pass is called with bytes that are to go to net/http. It returns how many of them may:
// fewer than all if the next request begins within them.
func (t *tracker) pass(b []byte) int {
	switch {
	case t.done && t.lost:
		return len(b)
	case t.done && t.chunked:
		n, end, ok := t.chunks.feed(b)
		if !ok {
			t.lost = true
			return len(b)
		}
		t.chunked = !end
		return n
	case t.done: // the body
		n := min(int64(len(b)), t.body)
		t.body -= n
		return int(n)
	}
	before := len(t.headSoFar)
	if before+len(b) > maxHeadSoFar {
		t.lost, t.fault, t.headSoFar = true, faultLong, nil
		return len(b)
	}
	if t.lost { // only for judge
		t.headSoFar = append(t.headSoFar, b...)
		return len(b)
	}
	head := b
	if before > 0 {
		head = append(t.headSoFar, b...)
	}
	// Half a head is not looked at: its end is what the length depends on.
	if !bytes.Contains(head[max(0, before-len(headEnd)+1):], []byte(headEnd)) {
		t.keepHead(head, before)
		return len(b)
	}
	h, ok := scanHead(head)
	if !ok {
		t.lost = true
		t.keepHead(head, before)
		return len(b)
	}
	n := min(int64(len(head)-h.end), h.length)
	t.done, t.body, t.chunked, t.chunks, t.headSoFar = true, h.length-n, h.chunked, chunks{}, nil
	if t.fault = h.fault; h.fault != "" {
		t.lost = true
		return len(b)
	}
	passed := h.end - before + int(n)
	if t.chunked {
		passed += t.pass(b[passed:])
	}
	return passed
}

// keepHead keeps a head. If none of it was kept before, the memory is the caller's, and is
// copied.
func (t *tracker) keepHead(head []byte, before int) {
	if before == 0 {
		head = bytes.Clone(head)
	}
	t.headSoFar = head
}

// headEnd is how a head ends.
const headEnd = "\r\n\r\n"

// head is the framing of a request.
type head struct {
	end     int   // where the body begins
	length  int64 // of the body, by Content-Length
	chunked bool
	fault   fault
}

// scanHead finds the end of the complete request head at the start of b, and the length of
// the body that follows it. It is ok only for heads that all parsers read alike: not with
// another coding than chunked, a bare line feed, a folded line …
func scanHead(b []byte) (h head, ok bool) {
	line, next, ok := headLine(b, 0)
	if !ok {
		return h, false
	}
	old, ok := wellFormedRequestLine(line)
	if !ok {
		return h, false
	}
	sized := false
	for {
		if line, next, ok = headLine(b, next); !ok {
			return h, false
		}
		if len(line) == 0 {
			h.end = next
			switch {
			case h.chunked && old:
				h.fault = faultOld
			case h.chunked && sized:
				h.fault = faultBoth
			}
			return h, true
		}
		name, value, ok := headField(line)
		if !ok {
			return h, false
		}
		switch lookupHeader(name) {
		case hdrTransferEncoding:
			if h.chunked || !bytes.EqualFold(value, []byte("chunked")) {
				return h, false
			}
			h.chunked = true
		case hdrContentLength:
			if h.length, ok = decimal(value); !ok || sized {
				return h, false
			}
			sized = true
		}
	}
}

// doubtful finds what is wrong with a head for which scanHead is not ok. It is as tolerant
// as any parser could be: "Content-Length :" counts as a Content-Length.
func doubtful(b []byte) fault {
	line, rest, _ := bytes.Cut(b, []byte{'\n'})
	old := bytes.HasSuffix(bytes.TrimRight(line, " \t\r"), []byte("HTTP/1.0"))
	lengths, coded, folded := 0, false, false
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) == 0 {
			break
		}
		folded = folded || line[0] == ' ' || line[0] == '\t'
		name, _, _ := bytes.Cut(line, []byte{':'})
		switch name = bytes.TrimFunc(name, func(r rune) bool { return r <= ' ' }); {
		case bytes.EqualFold(name, []byte("content-length")):
			lengths++
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			coded = true
		}
	}
	switch {
	case coded && old:
		return faultOld
	case coded && lengths > 0:
		return faultBoth
	case lengths > 1:
		return faultLengths
	case folded:
		return faultFold
	}
	return ""
}

// headLine returns the line at from, without its CRLF, and where the next one begins.
// Control bytes, a bare CR and a bare LF are refused.
func headLine(b []byte, from int) (line []byte, next int, ok bool) {
	n := bytes.IndexByte(b[from:], '\n')
	if n <= 0 || b[from+n-1] != '\r' {
		return nil, 0, false
	}
	line = b[from : from+n-1]
	for _, c := range line {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, 0, false
		}
	}
	return line, from + n + 1, true
}

// headField splits "Name: value". A name with anything but token characters
// (RFC 9110, 5.6.2) is refused: "Content-Length :" is how smuggling begins.
func headField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 || !token(line[:colon]) {
		return nil, nil, false
	}
	return line[:colon], bytes.Trim(line[colon+1:], " "), true
}

func token(b []byte) bool {
	for _, c := range b {
		if message.Class[c]&message.TokenByte == 0 {
			return false
		}
	}
	return len(b) > 0
}

// wellFormedRequestLine accepts METHOD SP target SP HTTP/1.1, or HTTP/1.0, which is old.
func wellFormedRequestLine(line []byte) (old, ok bool) {
	method, rest, _ := bytes.Cut(line, []byte{' '})
	target, proto, _ := bytes.Cut(rest, []byte{' '})
	if !token(method) || len(target) == 0 || bytes.IndexByte(target, '\t') >= 0 {
		return false, false
	}
	return string(proto) == "HTTP/1.0", string(proto) == "HTTP/1.1" || string(proto) == "HTTP/1.0"
}

// decimal reads a Content-Length: digits only, no sign, no list, no more than
// 18 of them (RFC 9110, 8.6).
func decimal(b []byte) (n int64, ok bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
