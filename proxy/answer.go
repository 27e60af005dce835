package proxy

import "net/http"

// Answer sends the client an upstream's answer to a request that [Handler.Outgoing]
// made. The request had no body, and the status is not 101. Answer closes the answer's
// body, and panics as Serve does.
func (h *Handler) Answer(w http.ResponseWriter, r *http.Request, res *http.Response) {
	if err := checkResponse(res); err != nil {
		res.Body.Close()
		h.Fail(w, r, err)
		return
	}
	StripHTTP(res.Header)
	AppendViaHTTP(res.Header, res.ProtoMajor, res.ProtoMinor)
	h.RestoreHTTP(res.Header, r)
	h.respond(w, r, res, nil)
}
