package proxy

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"millrace/internal/upstream"
	"millrace/internal/wire/field"
	"millrace/internal/wire/message"
	"millrace/internal/wire/send"
)

// Editor changes the answers of an upstream, for a job that uses the proxy.
type Editor interface {
	// Edit changes the fields of an answer, in place or by a longer slice. They need
	// no order, but those of one name. It may run on an event loop, and must not wait.
	// It is not called for the proxy's own answers (see [Handler.Fail]), nor for interim
	// ones.
	Edit(status int, lines []field.Line) []field.Line
}

// edit makes the fields of the client's answer out of the upstream's, in place. e may be
// nil.
func (h *Handler) edit(a *upstream.Answer, asked hop, e Editor) {
	Strip(&a.Fields)
	AppendVia(&a.Fields, a.Major, a.Minor)
	h.Restore(a.Fields, asked.proto, asked.host)
	if e != nil {
		a.Fields = e.Edit(a.Status, a.Fields)
	}
}

// checkAnswer returns an error for an answer that must not be passed on.
func checkAnswer(a *upstream.Answer) error {
	if a.Status < 200 && a.Status != http.StatusSwitchingProtocols || a.Status > 999 {
		return fmt.Errorf("%w: it answers with status %d", upstream.ErrProtocol, a.Status)
	}
	return CheckHeader(a.Fields)
}

// Answer sends the client an upstream's answer to a request that [Handler.Outgoing]
// made of q. The request had no body, and the status is not 101. Answer closes the answer's
// body, and panics as Serve does.
func (h *Handler) Answer(w http.ResponseWriter, r *http.Request, q *message.Request, a *upstream.Answer) {
	if err := checkAnswer(a); err != nil {
		a.Body.Close()
		h.Fail(w, r, err)
		return
	}
	scheme, host := h.Asked(q)
	h.edit(a, hop{proto: scheme, host: host}, nil)
	h.respond(w, r, a, nil)
}

// respond sends the upstream's answer. It panics with http.ErrAbortHandler when
// it breaks off.
func (h *Handler) respond(w http.ResponseWriter, r *http.Request, a *upstream.Answer, body *upload) {
	defer a.Body.Close()
	announced := answerHeader(w.Header(), r, a)
	body.closeAfter(w.Header(), r)
	send.PassOn(w)
	w.WriteHeader(a.Status)
	if r.Method == http.MethodHead {
		return
	}
	if _, readErr, writeErr := h.SendBody(w, a); readErr != nil || writeErr != nil {
		if readErr != nil && r.Context().Err() == nil {
			h.errorLog.Warn("an answer of the upstream broke off and was cut off here, too",
				"method", r.Method, "target", shortTarget(r), "cause", readErr)
		}
		panic(http.ErrAbortHandler)
	}
	a.Body.Close() // which completes a.Trailer
	trail(w, a.Trailer, announced)
}

// setFields sets fields in a header that may have some already. A value of the upstream's
// replaces them, except for Vary, where both are joined.
func setFields(header http.Header, l field.Lines) {
	if len(header) > 0 {
		for i := range l {
			if name := l[i].Name; name != "Vary" {
				delete(header, name)
			}
		}
	}
	values := make([]string, len(l))
	for i := range l {
		if old := header[l[i].Name]; len(old) > 0 {
			header[l[i].Name] = append(slices.Clip(old), l[i].Value)
			continue
		}
		values[i] = l[i].Value
		header[l[i].Name] = values[i : i+1 : i+1]
	}
}

// answerHeader puts the answer's header together and returns the trailers that
// it announces.
func answerHeader(header http.Header, r *http.Request, a *upstream.Answer) (announced []string) {
	setFields(header, a.Fields)
	send.NoGuess(header)
	if a.Status == http.StatusNoContent {
		delete(header, "Content-Length") // RFC 9110, 8.6
	}
	for name := range a.Trailer {
		if mayTrail(name) {
			announced = append(announced, name)
		}
	}
	if len(announced) > 0 && r.Method != http.MethodHead {
		slices.Sort(announced)
		header["Trailer"] = []string{strings.Join(announced, ", ")}
		if r.ProtoMajor == 1 {
			delete(header, "Content-Length") // HTTP/1 has trailers only with chunks
		}
	}
	return announced
}

// trail sends the trailers; those that were not announced net/http takes under
// a prefix.
func trail(w http.ResponseWriter, trailer http.Header, announced []string) {
	if len(trailer) > 0 {
		_ = send.Flush(w) // otherwise a short body gets a Content-Length, and no trailers
	}
	for name, values := range trailer {
		switch {
		case !mayTrail(name) || !valid(values):
		case slices.Contains(announced, name):
			w.Header()[name] = values
		default:
			w.Header()[http.TrailerPrefix+name] = values
		}
	}
}
