package lane

import "bytes"

// maxSince is how much of one request's head the ledger keeps; a longer head
// keeps the lane off that connection for good. Equal to net/http's own read
// buffer times four: heads of real browsers fit.
const maxSince = 16 << 10

// ledger knows whether net/http holds bytes of a connection that it has not
// yet consumed. It is told every byte that is passed on, and is sure only
// while these form exactly one request whose length it can tell without doubt.
// A mistake here would let the lane read bytes in a place where net/http sees
// the middle of something else: request smuggling (RFC 9112, 11.2).
type ledger struct {
	since []byte // an unfinished head, as passed on so far
	body  int64  // bytes of the request's body that are still to be passed on
	done  bool   // the head is complete
	lost  bool   // something was passed on whose length is not certain: for good
}

// clean reports whether nothing was passed on since the last reset.
func (l *ledger) clean() bool { return !l.lost && !l.done && len(l.since) == 0 }

// exact reports whether one whole request was passed on, and nothing else.
func (l *ledger) exact() bool { return !l.lost && l.done && l.body == 0 }

// reset is called when net/http has answered and waits for the next request.
func (l *ledger) reset() {
	if !l.exact() {
		l.lost = true
	}
	l.done, l.since = false, nil
}

// pass takes note of b, which is about to be passed on, and returns how much
// of it may be: less than all when another request begins within b.
func (l *ledger) pass(b []byte) int {
	switch {
	case l.lost:
		return len(b)
	case l.done: // the body
		n := min(int64(len(b)), l.body)
		l.body -= n
		return int(n)
	}
	head := b
	if len(l.since) > 0 {
		head = append(l.since, b...)
	}
	end, length, verdict := scanHead(head)
	switch {
	case verdict == matched:
		before := len(head) - len(b)
		n := min(int64(len(head)-end), length)
		l.done, l.body, l.since = true, length-n, nil
		return end - before + int(n)
	case verdict == short && len(head) <= maxSince:
		if len(l.since) > 0 {
			l.since = head
		} else {
			l.since = bytes.Clone(b)
		}
		return len(b)
	}
	l.lost, l.since = true, nil
	return len(b)
}

// scanHead finds the end of the request head that b begins with, and the
// length of the body that follows it. It answers matched only for heads about
// which no two parsers differ; everything whose extent is open to argument
// (Transfer-Encoding, Upgrade, Expect, a bare line feed, a folded line …) is
// refused. short means: nothing wrong so far, more must come.
func scanHead(b []byte) (end int, length int64, v verdict) {
	line, next, v := headLine(b, 0)
	if v != matched {
		return 0, 0, v
	}
	if !wellFormedRequestLine(line) {
		return 0, 0, refused
	}
	sized := false
	for {
		if line, next, v = headLine(b, next); v != matched {
			return 0, 0, v
		}
		if len(line) == 0 {
			return next, length, matched
		}
		name, value, ok := headField(line)
		if !ok {
			return 0, 0, refused
		}
		switch lookupHeader(name) {
		case hdrTransferEncoding, hdrUpgrade, hdrExpect, hdrHTTP2Settings, hdrTrailer:
			return 0, 0, refused
		case hdrContentLength:
			if length, ok = decimal(value); !ok || sized {
				return 0, 0, refused
			}
			sized = true
		}
	}
}

// headLine returns the line that begins at from, without its CRLF, and where
// the next begins. Control bytes, a bare CR and a bare LF are refused.
func headLine(b []byte, from int) (line []byte, next int, v verdict) {
	n := bytes.IndexByte(b[from:], '\n')
	if n < 0 {
		if rest := b[from:]; !clearText(bytes.TrimSuffix(rest, []byte{'\r'})) {
			return nil, 0, refused
		}
		return nil, 0, short
	}
	if n == 0 || b[from+n-1] != '\r' {
		return nil, 0, refused
	}
	line = b[from : from+n-1]
	if !clearText(line) {
		return nil, 0, refused
	}
	return line, from + n + 1, matched
}

// headField splits "Name: value". A name with anything but token characters
// (RFC 9110, 5.6.2) is refused: "Content-Length :" is how smuggling begins.
func headField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return nil, nil, false
	}
	name = line[:colon]
	for _, c := range name {
		if class[c]&isToken == 0 {
			return nil, nil, false
		}
	}
	return name, bytes.Trim(line[colon+1:], " "), true
}

// wellFormedRequestLine accepts METHOD SP target SP HTTP/1.1 and nothing else.
func wellFormedRequestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok || len(method) == 0 {
		return false
	}
	for _, c := range method {
		if c < 'A' || c > 'Z' {
			return false
		}
	}
	target, proto, ok := bytes.Cut(rest, []byte{' '})
	return ok && len(target) > 0 && string(proto) == "HTTP/1.1"
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
