package engine_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// untyped answers every HTTP request with these bytes behind its status line, and what
// the path says.
func untyped(t *testing.T) string {
	t.Helper()
	return application(t, func(w http.ResponseWriter, r *http.Request) {
		nc, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		_, _ = io.Copy(io.Discard, r.Body)
		status, fields := "200 OK", "Connection: close\r\n"
		if strings.Contains(r.URL.Path, "stored") {
			fields += "Cache-Control: max-age=60\r\nEtag: \"1\"\r\n"
		}
		switch {
		case strings.Contains(r.URL.Path, "error"):
			status = "404 Not Found"
		case strings.Contains(r.URL.Path, "nosniff"):
			fields += "X-Content-Type-Options: nosniff\r\n"
		case strings.Contains(r.URL.Path, "early"):
			status = "103 Early Hints\r\nLink: </a>; rel=preload\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK"
		}
		switch {
		case strings.Contains(r.URL.Path, "chunks"):
			fmt.Fprintf(nc, "HTTP/1.1 %s\r\n%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", status, fields, len(untypedPage), untypedPage)
		case r.Method == http.MethodHead:
			fmt.Fprintf(nc, "HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n", status, fields, len(untypedPage))
		default:
			fmt.Fprintf(nc, "HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s", status, fields, len(untypedPage), untypedPage)
		}
	})
}

const untypedPage = "<html><script>alert(1)</script></html>"

// scripted has every FastCGI request answered with what output makes of it.
func scripted(output func(params, body string) string) func(net.Listener) {
	return func(ln net.Listener) {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			runScript(nc, output)
		}
	}
}

func runScript(nc net.Conn, output func(params, body string) string) {
	defer nc.Close()
	var head [8]byte
	var params, body strings.Builder
	for {
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return
		}
		content := make([]byte, int(binary.BigEndian.Uint16(head[4:]))+int(head[6]))
		if _, err := io.ReadFull(nc, content); err != nil {
			return
		}
		if content = content[:len(content)-int(head[6])]; head[1] == 4 {
			params.Write(content)
		} else if head[1] == 5 && len(content) == 0 {
			break
		} else if head[1] == 5 {
			body.Write(content)
		}
	}
	out := output(params.String(), body.String())
	b := append([]byte{1, 6, 0, 1, byte(len(out) >> 8), byte(len(out)), 0, 0}, out...)
	_, _ = nc.Write(append(b, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
}

// TestNoTypeIsGuessed: what an application has sent without a type has none, by
// whatever way it comes and however often.
func TestNoTypeIsGuessed(t *testing.T) {
	up := untyped(t)
	dir, socket := overFastCGI(t, scripted(func(string, string) string { return "X-Powered-By: it\r\n\r\n" + untypedPage }), "a.php")
	everyWay(t, fmt.Sprintf(`
sites:
- routes:
    /proxy/: {proxy: %[1]s}
    /rules/: {proxy: %[1]s, headers: {set: {X-A: b}, when: [{type: [text/html], set: {X-Html: y}}]}}
    /stream/: {proxy: {to: %[1]s, stream: true}}
    /cache/: {cache: %[1]s}
    /ws/: {websocket: {proxy: %[1]s}}
    /php/: {static: {root: %[2]q}, php: %[3]q}
`, up, dir, socket), func(w *way) {
		for _, job := range []string{"proxy", "rules", "stream", "cache", "ws", "php"} {
			for _, kind := range []string{"plain", "chunks", "error", "nosniff", "early", "stored", "stored-chunks", "stored-error", "stored-nosniff"} {
				target := "/" + job + "/" + kind + strings.ReplaceAll(w.Name(), "/", "-")
				if job == "php" {
					target = "/php/a.php?" + kind
				}
				for i, head := range [][]string{nil, nil, nil, {"Range", "bytes=0-9"}, {"Range", "bytes=0-1,3-4"}, {"If-None-Match", `"1"`}, {"Cookie", "a=b", "Authorization", "x"}, {"Accept-Encoding", "gzip, br"}} {
					for _, method := range []string{"GET", "HEAD", "POST"} {
						if job == "ws" && method == "POST" {
							continue
						}
						res, body := w.ask(method, target, "", head...)
						if kind := res.Header["Content-Type"]; kind != nil && !strings.HasPrefix(kind[0], "multipart/byteranges;") || res.Header.Get("X-Html") != "" {
							w.Errorf("%s %s %v, the %d. time: %d with the type %q", method, target, head, i, res.StatusCode, kind)
						}
						if method != "HEAD" && !strings.Contains(body, untypedPage[:2]) && res.StatusCode != http.StatusNotModified {
							w.Errorf("%s %s %v, the %d. time: %d %q", method, target, head, i, res.StatusCode, body)
						}
					}
				}
			}
		}
	})
}
