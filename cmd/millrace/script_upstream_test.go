package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// planted is the body of the answers that nobody asked for.
const planted = "planted by somebody else"

// startTalkative is `talkative NAME [-unix SOCKET | -tls PREFIX]`: an upstream
// that writes a second complete answer behind each one. Its own answers have
// the request's target as body; $NAME is its URL.
func startTalkative(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 && len(args) != 3 {
		ts.Fatalf("usage: talkative NAME [-unix SOCKET | -tls PREFIX]")
	}
	network, address, scheme := "tcp", "127.0.0.1:0", "http://"
	if len(args) == 3 && args[1] == "-unix" {
		network, address, scheme = "unix", ts.MkAbs(args[2]), "unix:"
	}
	ln, err := net.Listen(network, address)
	ts.Check(err)
	ts.Setenv(args[0], scheme+ln.Addr().String())
	if len(args) == 3 && args[1] == "-tls" {
		pair, err := tls.LoadX509KeyPair(ts.MkAbs(args[2]+"cert.pem"), ts.MkAbs(args[2]+"key.pem"))
		ts.Check(err)
		ts.Setenv(args[0], "https://"+ln.Addr().String())
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
	}
	var open sync.Map
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			running.Go(func() { talkTooMuch(c) })
		}
	})
	ts.Defer(func() {
		_ = ln.Close() // nobody is left who would hear of it
		open.Range(func(c, _ any) bool { _ = c.(net.Conn).Close(); return true })
		running.Wait()
	})
}

// talkTooMuch answers on one connection: in one write with what nobody asked for,
// so that no pause between the two decides about the test. Of large answers the
// reader leaves that in the kernel. A target with /204/ or /304/ in it has that
// status.
func talkTooMuch(c net.Conn) {
	defer c.Close()
	more := fmt.Sprintf("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: %d\r\n\r\n%s", len(planted), planted)
	reader := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		target := r.URL.RequestURI()
		body := strings.Repeat(target+"\n", 1+int(target[len(target)-1])%2*8000)
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: \"1\"\r\nContent-Length: %d\r\n\r\n", len(body))
		switch {
		case strings.Contains(target, "/204/"):
			answer = "HTTP/1.1 204 No Content\r\n\r\n"
		case strings.Contains(target, "/304/"):
			answer = "HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"
		case r.Method != http.MethodHead:
			answer += body
		}
		if _, err := io.WriteString(c, answer+more); err != nil {
			return
		}
	}
}

// sequential URL N [METHOD [PREFIX]] asks for N targets, one right after the other
// on one connection, and fails when an answer is not that of its target, or when
// more than one in a hundred are 502.
func sequential(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || len(args) > 4 {
		ts.Fatalf("usage: sequential URL N [METHOD [PREFIX]]")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	method, prefix := http.MethodGet, ""
	if len(args) > 2 {
		method = args[2]
	}
	if len(args) > 3 {
		prefix = args[3]
	}
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(args[0], "http://"), "/"))
	ts.Check(err)
	defer conn.Close()
	ts.Check(conn.SetDeadline(time.Now().Add(patience)))
	reader := bufio.NewReader(conn)
	wrong, failed := 0, 0
	for i := range n {
		target := fmt.Sprintf("%s/%d", prefix, i)
		_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: \"2\"\r\n\r\n", method, target)
		ts.Check(err)
		resp, err := http.ReadResponse(reader, &http.Request{Method: method})
		ts.Check(err)
		body, err := io.ReadAll(resp.Body)
		ts.Check(err)
		first, _, _ := strings.Cut(string(body), "\n")
		empty := method == http.MethodHead || strings.Contains(prefix, "/204") || strings.Contains(prefix, "/304")
		switch {
		case resp.StatusCode == http.StatusBadGateway:
			failed++
		case first == target && !empty, first == "" && empty && resp.ContentLength != int64(len(planted)):
		default:
			wrong++
		}
	}
	if wrong > 0 || failed > n/100 {
		ts.Fatalf("of %d answers %d were not for their request, and %d were 502", n, wrong, failed)
	}
}
