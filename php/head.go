package php

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"millrace/internal/upstream/http1"
	"millrace/internal/wire/field"
)

// head is what a script says before its body.
type head struct {
	status int
	length int64       // of the body; -1: it does not say
	fields field.Lines // that the client gets, but for Content-Length
}

// maxHead bounds a head, in bytes.
const maxHead = 32 << 10

// errHead is what is wrong with a head.
var errHead = errors.New("the script's header fields cannot be read")

// read reads the head of a CGI answer (RFC 3875, 6.2 and 6.3) at the start of text. n is
// how many bytes it has; 0: it does not end there.
func (h *head) read(text []byte) (n int, err error) {
	n = headLen(text)
	switch {
	case n == 0 && len(text) < maxHead:
		return 0, nil
	case n == 0 || n > maxHead:
		return 0, fmt.Errorf("%w: they have more than %d bytes", errHead, maxHead)
	}
	*h = head{length: -1, fields: h.fields[:0]}
	said, moved := "", false
	for rest := string(text[:n]); ; {
		var l field.Line
		if l, rest, err = http1.NextField(rest); err != nil {
			return 0, fmt.Errorf("%w: %w", errHead, err)
		}
		switch l.Name {
		case "":
			h.status, err = statusOf(said, moved)
			return n, err
		case "Status":
			if said == "" {
				said = l.Value
			}
			continue
		case "Content-Length":
			size, err := strconv.ParseUint(l.Value, 10, 63)
			if err != nil || h.length >= 0 {
				return 0, fmt.Errorf("%w: the length %q", errHead, l.Value)
			}
			h.length = int64(size)
			continue
		case "Connection", "Keep-Alive", "Proxy-Connection", "Server", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Accel-Buffering":
			continue
		case "Location":
			moved = moved || l.Value != ""
		}
		h.fields = append(h.fields, l)
	}
}

// headLen is how many bytes the head has at the start of text, with the empty line behind
// it; 0: there is none.
func headLen(text []byte) int {
	for at := 0; ; {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			return 0
		}
		empty := n == 0 || n == 1 && text[at] == '\r'
		if at += n + 1; empty {
			return at
		}
	}
}

// statusOf is the status that a script gives its answer.
func statusOf(said string, moved bool) (int, error) {
	switch {
	case said == "" && moved:
		return http.StatusFound, nil
	case said == "":
		return http.StatusOK, nil
	}
	code, _, _ := strings.Cut(said, " ")
	status, err := strconv.Atoi(code)
	if err != nil || status < 200 || status > 599 {
		return 0, fmt.Errorf("%w: the status %q", errHead, said)
	}
	return status, nil
}

// bodiless reports whether there is no body behind the head, whatever comes (RFC 9110,
// 6.4.1).
func (h *head) bodiless(method string) bool {
	return method == http.MethodHead || h.status == http.StatusNoContent || h.status == http.StatusNotModified
}

// body is what of the text behind the head belongs to the body.
func (h *head) body(text []byte) []byte {
	if h.length >= 0 {
		return text[:min(int64(len(text)), h.length)]
	}
	return text
}

// framed is the Content-Length of an answer of whose body this has come; -1: it has none.
func (h *head) framed(method string, body []byte, whole bool) int64 {
	switch {
	case h.status == http.StatusNoContent || h.status == http.StatusNotModified:
		return -1
	case h.length >= 0 || method == http.MethodHead || !whole:
		return h.length
	}
	return int64(len(body))
}
