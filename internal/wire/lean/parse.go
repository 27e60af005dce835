package lean

import "millrace/internal/wire/message"

// fewFields is how many header fields are stored in the exchange itself.
const fewFields = 12

// New parses a complete head, as [message.End] has found it. It returns nil if net/http
// must serve the request: see [message.Request.Parse].
func New(head string) *Exchange {
	var h message.Request
	if !h.Parse(head) {
		return nil
	}
	return NewExchange(&h)
}

// NewExchange makes an exchange of a parsed head; nil if its target is not valid.
func NewExchange(h *message.Request) *Exchange {
	x := &Exchange{method: h.Method, target: h.Target, host: h.Host, length: h.Length, proto: h.Proto(), major: h.Major, minor: h.Minor}
	if !h.URL(&x.url) {
		return nil
	}
	x.header = h.Header(x.values[:])
	return x
}
