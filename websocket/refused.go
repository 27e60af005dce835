package websocket

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"millrace/internal/wire/message"
	"millrace/websocket/channels"
)

// A browser tells its page nothing about why a handshake was refused. So what an
// operator can do about it is in the error log, with what to type.

// refusalLogInterval is how often each kind of refusal is logged: it may be the same for
// every client, and the access log has each of them.
const refusalLogInterval = 10 * time.Second

// logOriginRefused logs that a page of another site was refused.
func (h *Handler) logOriginRefused(q *message.Request) {
	h.originRefusals.Do(func() {
		h.errorLog.Warn("a WebSocket is refused: its page is of another site", "origin", shortened(q.Value("Origin")), "host", shortened(q.Host),
			"hint", "to let that site connect: websocket.origins in a config, or millrace ws --origin")
	})
}

// full refuses a client for which there is no place. It logs which limit was reached
// and what raises it.
func (h *Handler) full(warn *rate.Sometimes, q *message.Request, why, hint string) *channels.Refusal {
	warn.Do(func() {
		h.errorLog.Warn("a WebSocket is refused: "+why, "address", netip.AddrPortFrom(q.Peer, q.Port), "target", shortened(q.Decoded()), "limit", hint)
	})
	return &channels.Refusal{Status: http.StatusServiceUnavailable, Text: strings.ToUpper(why[:1]) + why[1:] + ": come again later."}
}

// logUpstreamRefused logs that the upstream refuses a WebSocket with a status
// that servers use for an Origin or a Host that they do not know, and what helps
// most often.
func (h *Handler) logUpstreamRefused(r *http.Request, status int) {
	host, origin := h.options.ProxyOptions().Host, r.Header.Get("Origin")
	var hint string
	switch status {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusMisdirectedRequest:
	default:
		return
	}
	switch {
	case host == hostOfClient:
		host, hint = "the client's", "if the upstream answers to its own name only: websocket.proxy.host: upstream in a config, or millrace ws proxy --host upstream"
	case origin != "":
		hint = "if the upstream compares Origin with Host: websocket.proxy.host: client in a config, or millrace ws proxy --host client"
	default:
		return
	}
	h.upstreamRefusals.Do(func() {
		h.errorLog.Warn("the upstream refuses a WebSocket", "status", status, "target", shortened(r.URL.RequestURI()),
			"origin", shortened(origin), "host_sent", host, "hint", hint)
	})
}

// shortened is at most 200 bytes of what a client says.
func shortened(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
