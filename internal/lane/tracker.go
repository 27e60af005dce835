package lane

import "bytes"

// maxHeadSoFar is how much of one request's head the tracker keeps while the rest
// has not come. net/http takes less, unless limits.header_bytes says more.
const maxHeadSoFar = 1 << 20

// tracker follows the framing of requests: it knows whether net/http holds bytes of a connection that it has not
// yet consumed. It is told every byte that is passed on, and is sure only
// while these form exactly one request whose length it can tell without doubt.
// A mistake here would let the lane read bytes in a place where net/http sees
// the middle of something else: request smuggling (RFC 9112, 11.2). For the
// same reason a request about whose length there is any doubt is the last of
// its connection, and one whose framing contradicts itself is refused (judge).
type tracker struct {
	headSoFar  []byte // an unfinished head, as passed on so far
	body       int64  // bytes of the request's body that are still to be passed on
	chunks     chunks // the same of a chunked body
	chunked    bool
	done       bool // the head is complete
	lost       bool // something was passed on whose length is not certain: for good
	lostBefore bool // that was before this request: it may begin anywhere
	fault      fault
}

// fault is why a request is refused; it has no other answer than that.
type fault string

// The framing that RFC 9112, 6.1 and 6.3, call faulty. Whoever takes the one
// field and whoever takes the other see different requests behind it.
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
		t.lost = true // net/http found an end that is none for us
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

// pass takes note of b, which is about to be passed on, and returns how much
// of it may be: less than all when another request begins within b.
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

// keepHead remembers a head whose first bytes are kept already: of a head without
// such bytes, which is the caller's, it makes a copy.
func (t *tracker) keepHead(head []byte, before int) {
	if before == 0 {
		head = bytes.Clone(head)
	}
	t.headSoFar = head
}

// headEnd is how a head ends.
const headEnd = "\r\n\r\n"

// head is what the framing of a request says.
type head struct {
	end     int   // where the body begins
	length  int64 // of the body, by Content-Length
	chunked bool
	fault   fault
}

// scanHead finds the end of the complete request head that b begins with, and
// the length of the body that follows it. It is sure only of heads about which
// no two parsers differ; everything whose extent is open to argument (another
// coding than chunked, a bare line feed, a folded line …) is not ok.
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

// doubtful finds what is wrong with a head that scanHead is not sure of. It
// reads as tolerantly as any parser could: a name that somebody may take for
// one of the two counts as it.
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

// headLine returns the line that begins at from, without its CRLF, and where
// the next begins. Control bytes, a bare CR and a bare LF are refused.
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
		if class[c]&isToken == 0 {
			return false
		}
	}
	return len(b) > 0
}

// wellFormedRequestLine accepts METHOD SP target SP HTTP/1.1 and nothing else
// but HTTP/1.0 (old).
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
