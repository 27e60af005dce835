package proxy

import "net/http"

// Answer passes on an answer that the upstream gave to a request made by
// [Handler.Outgoing], and that needs nothing but that: of a request without a
// body, and with any status but 101. It closes the answer's body, and panics
// as Serve does.
func (h *Handler) Answer(w http.ResponseWriter, r *http.Request, res *http.Response) {
	if err := checkResponse(res); err != nil {
		res.Body.Close()
		h.Fail(w, r, err)
		return
	}
	Strip(res.Header)
	AppendVia(res.Header, res.ProtoMajor, res.ProtoMinor)
	h.respond(w, r, res, nil)
}
