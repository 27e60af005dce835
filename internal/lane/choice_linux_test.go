package lane

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"

	"millrace/internal/wire/h2"
	"millrace/internal/wire/send"
)

// rangeAnswer makes "/range" hot, with a body in memory and validators.
func (b *bench) rangeAnswer(body string) {
	modified := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	a := &send.Answer{Header: http.Header{
		"Accept-Ranges": {"bytes"}, "Cache-Control": {"max-age=300"}, "Content-Length": {strconv.Itoa(len(body))},
		"Content-Location": {"/range"}, "Content-Type": {"text/plain; charset=utf-8"}, "Etag": {`"tag"`},
		"Last-Modified": {modified.Format(http.TimeFormat)}, "X-Content-Type-Options": {"nosniff"},
	}, Body: []byte(body), Size: int64(len(body)), ETag: `"tag"`, LastModified: modified}
	b.lane.table.put(key{1, "/range", false}, demands{}, variant{response: newResponse(a, Rule{}, b.meters.Job("test"))})
}

// conditionals are requests for a hot answer that are not answered by all of it. A pair is a
// field's name and its value.
var conditionals = map[string][]string{
	"range":         {"range", "bytes=0-99"},
	"suffix":        {"range", "bytes=-7"},
	"if-range":      {"range", "bytes=100-", "if-range", `"tag"`},
	"tag":           {"if-none-match", `"tag"`},
	"list of tags":  {"if-none-match", `"other", W/"tag"`},
	"date":          {"if-modified-since", "Mon, 06 May 2024 07:08:09 GMT"},
	"tag and range": {"range", "bytes=0-99", "if-none-match", `"other"`},
}

func rangeRequest(fields ...string) string {
	var b strings.Builder
	b.WriteString("GET /range HTTP/1.1\r\nHost: a\r\n")
	for i := 0; i < len(fields); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", fields[i], fields[i+1])
	}
	return b.String() + "\r\n"
}

func rangeFields(fields ...string) []hpack.HeaderField {
	list := []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "a"}, {Name: ":path", Value: "/range"}}
	for i := 0; i < len(fields); i += 2 {
		list = append(list, hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	return list
}

// A part of an answer, and 304 in its place, cost no allocation over HTTP/1.1 and HTTP/2.
func TestPartsAllocate(t *testing.T) {
	b := newBench(t, patient)
	defer b.lane.Close()
	b.rangeAnswer(strings.Repeat("0123456789", 50))
	nc, _ := FromNet(b.lane.NewConn(&countingConn{}, b.scope, nil))
	defer nc.Close()
	host := &h2Host{TLSConn: &TLSConn{Conn: nc}}
	s := new(scratch)
	for name, fields := range conditionals {
		in, block := []byte(rangeRequest(fields...)), rangeFields(fields...)
		if n := testing.AllocsPerRun(2000, func() {
			if used, _ := nc.answerHot(s, in, noDescriptor); used != len(in) {
				t.Fatal("not answered")
			}
		}); n != 0 {
			t.Errorf("%s over HTTP/1.1: %v allocations", name, n)
		}
		dst := make([]byte, 0, 4096)
		if n := testing.AllocsPerRun(2000, func() {
			if _, _, ok := host.Answer(dst, 1, block, h2.Room{Window: 1 << 16, Frame: 1 << 14}); !ok {
				t.Fatal("not answered")
			}
		}); n != 0 {
			t.Errorf("%s over HTTP/2: %v allocations", name, n)
		}
	}
}

// BenchmarkConditional is BenchmarkHit for parts and 304.
func BenchmarkConditional(b *testing.B) {
	bench := newBench(b, patient)
	defer bench.lane.Close()
	bench.rangeAnswer(strings.Repeat("0123456789", 50))
	nc, _ := FromNet(bench.lane.NewConn(&countingConn{}, bench.scope, nil))
	defer nc.Close()
	host := &h2Host{TLSConn: &TLSConn{Conn: nc}}
	s := new(scratch)
	for name, fields := range conditionals {
		b.Run("h1/"+name, func(b *testing.B) {
			in := []byte(rangeRequest(fields...))
			b.ReportAllocs()
			for b.Loop() {
				if used, _ := nc.answerHot(s, in, noDescriptor); used != len(in) {
					b.Fatal("not answered")
				}
			}
		})
		b.Run("h2/"+name, func(b *testing.B) {
			block, dst := rangeFields(fields...), make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, ok := host.Answer(dst, 1, block, h2.Room{Window: 1 << 16, Frame: 1 << 14}); !ok {
					b.Fatal("not answered")
				}
			}
		})
	}
}

// Parts that were asked for together keep their own headers, also where the client takes
// them late.
func TestPartsPipelined(t *testing.T) {
	body := strings.Repeat("0123456789", 10_000)
	ranges := []string{"bytes=0-0", "bytes=10-4000", "bytes=7-90000", "bytes=99999-", "bytes=-5000", "bytes=3-20000", "bytes=x"}
	for name, prepare := range map[string]func(b *bench){
		"memory": func(b *bench) { b.rangeAnswer(body) },
		"file": func(b *bench) {
			b.rangeAnswer(body)
			file := b.fileAnswer(t, body)
			if !file.InMemory(0, int64(len(body))) {
				t.Skip("the file system of the temporary folder does not say what is in memory")
			}
			e := b.lane.table.slots
			for i := range e {
				if e := e[i].Load(); e != nil && e.target == "/range" {
					a := *e.variants[0].response.answer
					a.Body, a.File = nil, file
					b.lane.table.put(e.key, demands{}, variant{response: newResponse(&a, Rule{}, b.meters.Job("test"))})
				}
			}
		},
	} {
		for times, late := range map[int]bool{1: false, 2: false, 9: true} {
			b := newBench(t, patient)
			prepare(b)
			client, left, _ := b.owned(t)
			var in, want strings.Builder
			for range times {
				for _, r := range ranges {
					in.WriteString(rangeRequest("Range", r))
				}
			}
			in.WriteString(rangeRequest("If-None-Match", `"tag"`))
			for range times {
				want.WriteString("206 bytes 0-0/100000 1 0\n206 bytes 10-4000/100000 3991 01\n206 bytes 7-90000/100000 89994 78\n" +
					"206 bytes 99999-99999/100000 1 9\n206 bytes 95000-99999/100000 5000 01\n206 bytes 3-20000/100000 19998 34\n200  100000 01\n")
			}
			want.WriteString("304  0 \n")
			wrote := make(chan struct{})
			go func() {
				defer close(wrote)
				_, _ = io.WriteString(client, in.String())
			}()
			if late {
				time.Sleep(50 * time.Millisecond) // until the socket is full
			}
			if got := partsOf(t, client, times*len(ranges)+1); got != want.String() {
				t.Errorf("%s, %d times: got\n%s", name, times, got)
			}
			<-wrote
			if len(left) > 0 {
				t.Errorf("%s: the connection has left its loop", name)
			}
			b.lane.Close()
		}
	}
}

// A part that waits for its client is not overwritten by one for another client.
func TestPartThatWaits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // one loop
	b := newBench(t, patient)
	defer b.lane.Close()
	b.rangeAnswer(strings.Repeat("0123456789", 10_000))
	slow, _, _ := b.owned(t)
	other, _, _ := b.owned(t)
	n, job := 0, b.meters.Job("test")
	for sent, before := uint64(1), uint64(0); sent > before; n++ { // until the socket is full
		before = b.meters.Sent.Writev.Load()
		if _, err := io.WriteString(slow, rangeRequest("Range", "bytes=10-4000")); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if sent = b.meters.Sent.Writev.Load(); sent > before && job.Fast.Requests() > uint64(n) {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if _, err := io.WriteString(other, rangeRequest("Range", "bytes=5-6")); err != nil {
		t.Fatal(err)
	}
	if got, want := partsOf(t, other, 1), "206 bytes 5-6/100000 2 56\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := partsOf(t, slow, n), strings.Repeat("206 bytes 10-4000/100000 3991 01\n", n); got != want {
		t.Errorf("%q", got)
	}
}

// partsOf reads answers, and says of each its status, the part, the length and how it begins.
func partsOf(t *testing.T, client net.Conn, n int) string {
	t.Helper()
	var out strings.Builder
	r := bytes.NewBuffer(nil)
	buf := make([]byte, 64<<10)
	for n > 0 {
		m, err := client.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, out.String())
		}
		r.Write(buf[:m])
		for n > 0 {
			head, rest, ok := bytes.Cut(r.Bytes(), []byte("\r\n\r\n"))
			if !ok {
				break
			}
			field := func(name string) string {
				_, after, _ := strings.Cut(string(head)+"\r\n", "\r\n"+name+": ")
				value, _, _ := strings.Cut(after, "\r\n")
				return value
			}
			length, _ := strconv.Atoi(field("Content-Length"))
			if len(rest) < length {
				break
			}
			fmt.Fprintf(&out, "%s %s %d %s\n", head[9:12], field("Content-Range"), length, rest[:min(length, 2)])
			r.Next(len(head) + 4 + length)
			n--
		}
	}
	return out.String()
}
