package faulty

import (
	"strings"
	"time"
)

// Effect is what a client that gets a scenario should make of it.
type Effect int

// The effects.
const (
	// Whole is a good answer, whatever there is to complain about.
	Whole Effect = iota
	// Refused means no answer: the connection breaks before one.
	Refused
	// Broken means an answer that cannot be read.
	Broken
	// Late means no answer in time.
	Late
	// Cut is a header, then a body that is not whole.
	Cut
	// Stalled is a header, then a body that does not go on.
	Stalled
)

// Scenario is a way to go wrong.
type Scenario struct {
	Name   string
	Script Script
	Effect Effect
	// Method of the request that brings it about, where it is not GET.
	Method string
}

// EndlessHeader is how much an endless header holds.
const EndlessHeader = 100 << 20

// Secret is in the bytes that must never reach anyone: those after an answer's
// end, and those that look like a second answer.
const Secret = "another client's secret"

const (
	head  = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
	other = "HTTP/1.1 200 OK\r\nContent-Length: 23\r\n\r\n" + Secret
)

// Scenarios lists them all. "Refused to connect" is not among them: that is a
// server which was closed.
func Scenarios() []Scenario {
	ask := Request()
	first := func(steps ...Step) Script { return append(Script{ask}, steps...) }
	return []Scenario{
		{Name: "close at once", Script: Script{}, Effect: Refused},
		{Name: "reset at once", Script: Script{Reset()}, Effect: Refused},
		{Name: "close after request", Script: first(), Effect: Refused},
		{Name: "reset after request", Script: first(Reset()), Effect: Refused},
		{Name: "hang before header", Script: first(Hang()), Effect: Late},
		{Name: "hang in header", Script: first(Send(head), Hang()), Effect: Late},
		{Name: "trickle header", Script: first(Trickle(head+strings.Repeat("X: y\r\n", 1000), 100*time.Millisecond)), Effect: Late},

		{Name: "cut in header", Script: first(Send(head + "X-Cut: ye")), Effect: Broken},
		{Name: "reset in header", Script: first(Send(head+"X-Cut: ye"), Reset()), Effect: Broken},
		{Name: "garbage", Script: first(Send("\x16\x03\x01\x00\x05hello\r\n\r\n")), Effect: Broken},
		{Name: "HTTP/0.9", Script: first(Send("<html>hello</html>\r\n\r\n")), Effect: Broken},
		{Name: "HTTP/9.9", Script: first(Send("HTTP/9 200 OK\r\n\r\n")), Effect: Broken},
		{Name: "status of letters", Script: first(Send("HTTP/1.1 abc OK\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "status of two digits", Script: first(Send("HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "status of four digits", Script: first(Send("HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "status 099", Script: first(Send("HTTP/1.1 099 Low\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "negative status", Script: first(Send("HTTP/1.1 -20 OK\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "unasked upgrade", Script: first(Send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), Hang()), Effect: Broken},

		{Name: "endless header", Script: first(Send(head), Flood("X-More: "+strings.Repeat("m", 1000)+"\r\n", EndlessHeader)), Effect: Broken},
		{Name: "endless header line", Script: first(Send(head+"X-More: "), Flood("mmmmmmmm", EndlessHeader)), Effect: Broken},
		{Name: "endless status line", Script: first(Send("HTTP/1.1 200 "), Flood("OK", EndlessHeader)), Effect: Broken},
		{Name: "endless interim responses", Script: first(Flood("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", EndlessHeader)), Effect: Broken},

		{Name: "header without colon", Script: first(Send(head + "Set-Cookie\r\n\r\n")), Effect: Broken},
		{Name: "space before colon", Script: first(Send(head + "Content-Length : 5\r\n\r\nhello")), Effect: Broken},
		{Name: "NUL in header", Script: first(Send(head + "X-A: b\x00c\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "bare CR in header", Script: first(Send(head + "X-A: b\rSet-Cookie: admin=1\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},
		{Name: "CR in header name", Script: first(Send(head + "X-A\r: b\r\nContent-Length: 0\r\n\r\n")), Effect: Broken},

		{Name: "different lengths", Script: first(Send(head + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")), Effect: Broken},
		{Name: "list of different lengths", Script: first(Send(head + "Content-Length: 5, 6\r\n\r\nhello!")), Effect: Broken},
		{Name: "negative length", Script: first(Send(head + "Content-Length: -5\r\n\r\nhello")), Effect: Broken},
		{Name: "signed length", Script: first(Send(head + "Content-Length: +5\r\n\r\nhello")), Effect: Broken},
		{Name: "huge length", Script: first(Send(head + "Content-Length: 99999999999999999999\r\n\r\nhello")), Effect: Broken},
		{Name: "unknown transfer coding", Script: first(Send(head + "Transfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")), Effect: Broken},
		{Name: "twice chunked", Script: first(Send(head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")), Effect: Broken},

		{Name: "length too large", Script: first(Send(head + "Content-Length: 100\r\n\r\nhello")), Effect: Cut},
		{Name: "reset in body", Script: first(Send(head+"Content-Length: 100\r\n\r\nhello"), Pause(20*time.Millisecond), Reset()), Effect: Cut},
		{Name: "chunks without end", Script: first(Send(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")), Effect: Cut},
		{Name: "cut in chunk", Script: first(Send(head + "Transfer-Encoding: chunked\r\n\r\nff\r\nhello")), Effect: Cut},
		{Name: "bad chunk size", Script: first(Send(head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n")), Effect: Cut},
		{Name: "negative chunk size", Script: first(Send(head + "Transfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n")), Effect: Broken},
		{Name: "huge chunk size", Script: first(Send(head + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello")), Effect: Broken},
		{Name: "endless chunk extension", Script: first(Send(head+"Transfer-Encoding: chunked\r\n\r\n5;"), Flood("e", EndlessHeader)), Effect: Cut},
		{Name: "endless trailer", Script: first(Send(head+"Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n5\r\nhello\r\n0\r\n"), Flood("X: y\r\n", EndlessHeader)), Effect: Cut},
		{Name: "stall in body", Script: first(Send(head+"Content-Length: 100\r\n\r\nhello"), Hang()), Effect: Stalled},
		{Name: "stall between chunks", Script: first(Send(head+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"), Hang()), Effect: Stalled},
		{Name: "stall before body", Script: first(Send(head+"Content-Length: 5\r\n\r\n"), Hang()), Effect: Stalled},

		{Name: "length too small", Script: Script{Loop(ask, Send(head+"Content-Length: 5\r\n\r\nhello"+other))}},
		{Name: "half an answer too much", Script: Script{Loop(ask, Send(head+"Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nX-Leak: "+Secret))}},
		{Name: "body after HEAD", Method: "HEAD", Script: Script{Loop(ask, Send(head+"Content-Length: 63\r\n\r\n"+other))}},
		{Name: "body after 204", Script: Script{Loop(ask, Send("HTTP/1.1 204 No Content\r\n\r\n"+other))}},
		{Name: "body after 304", Script: Script{Loop(ask, Send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"+other))}},
		{Name: "length and chunks", Script: Script{Loop(ask, Send(head+"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))}},
		{Name: "the same length twice", Script: Script{Loop(ask, Send(head+"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"))}},
		{Name: "folded header", Script: Script{Loop(ask, Send(head+"X-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello"))}},
		{Name: "redirect loop", Script: Script{Loop(ask, Send("HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"))}},
		{Name: "bad dates", Script: Script{Loop(ask, Send("HTTP/1.1 200 OK\r\nDate: yesterday\r\nExpires: -1\r\nLast-Modified: Fri, 32 Foo 20266 99:99:99 GMT\r\nAge: -1\r\nContent-Length: 5\r\n\r\nhello"))}},
		{Name: "status 999", Script: Script{Loop(ask, Send("HTTP/1.1 999 Denied\r\nContent-Length: 0\r\n\r\n"))}},
	}
}

// Named is the scenario with this name. It panics where there is none, which is
// a mistake in a test.
func Named(name string) Scenario {
	for _, s := range Scenarios() {
		if s.Name == name {
			return s
		}
	}
	panic("faulty: there is no scenario " + name)
}
