package main

import (
	"net"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// collect NAME SOCKET is a syslog daemon until the script ends: what comes at the
// socket is in the file NAME, a line for each message.
func collect(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: collect NAME SOCKET")
	}
	conn, err := net.ListenPacket("unixgram", args[1])
	ts.Check(err)
	file, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	var gone sync.WaitGroup
	ts.Defer(func() {
		_ = conn.Close() // ends the goroutine
		gone.Wait()
		_ = file.Close()
	})
	gone.Go(func() {
		b := make([]byte, 64<<10)
		for {
			n, _, err := conn.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = file.Write(append(b[:n:n], '\n'))
		}
	})
}

// collected NAME REGEXP waits until such a message has come.
func collected(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: collected NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		said := ts.ReadFile(args[0])
		if re.MatchString(said) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no message like that came:\n%s", said)
		}
	}
}
