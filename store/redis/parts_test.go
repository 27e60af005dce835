package redis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"redis://h":                         "[h:6379] db 0 user  tls false",
		"redis://h:1/2":                     "[h:1] db 2 user  tls false",
		"valkeys://u:p@h:1":                 "[h:1] db 0 user u tls true",
		"rediss://u:p%40@h:1,i:2,[::1]:3,j": "[h:1 i:2 [::1]:3 j:6379] db 0 user u tls true",
		"redis://h?addr=i:2":                "[h:6379 i:2] db 0 user  tls false",
		"redis://h:1,i:2/3":                 "[h:1 i:2] db 3 user  tls false",
		"unix:///run/redis.sock?db=1":       "[/run/redis.sock] db 1 user  tls false",
	} {
		at, err := parseURL(text)
		o := at.client
		if at.prefix != defaultPrefix {
			t.Errorf("%s: the prefix %q", text, at.prefix)
		}
		if got := fmt.Sprintf("%v db %d user %s tls %v", o.InitAddress, o.SelectDB, o.Username, o.TLSConfig != nil); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"redis-sentinel://h": "[h:26379] mymaster :",
		"redis-sentinel://u:p@h:1,i/2?master=shop&sentinel_user=s&sentinel_password=%401": "[h:1 i:26379] shop s:@1",
		"valkeys-sentinel://[::1]?master=a":                                               "[[::1]:26379] a :",
	} {
		at, err := parseURL(text)
		o := at.client
		if got := fmt.Sprintf("%v %s %s:%s", o.InitAddress, o.Sentinel.MasterSet, o.Sentinel.Username, o.Sentinel.Password); err != nil || got != want || o.Sentinel.TLSConfig != o.TLSConfig {
			t.Errorf("%s is %s, %v; want %s", text, got, err, want)
		}
	}
	for name, want := range map[string]string{"": "millrace:", "shop": "shop:", "shop:": "shop:", "a/b-c.2": "a/b-c.2:"} {
		if got, err := prefixOf(name); err != nil || got != want {
			t.Errorf("the prefix %q is %q, %v; want %q", name, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"redis://h?prefix=a%20b":                                "beginning of keys",
		"redis://h?prefix=a*":                                   "beginning of keys",
		"redis://h?prefix=%7Ba%7D":                              "beginning of keys",
		"redis://h?prefix=" + strings.Repeat("x", mostPrefix+1): "beginning of keys",
		"redis://h?master=a":                                    "redis-sentinel://",
		"redis-sentinel://h#shop":                               "?master=NAME",
		"unix-sentinel:///x":                                    "no socket",
		"":                                                      "write redis://",
		"localhost:6379":                                        "write redis://",
		"http://h":                                              "write redis://",
		"redis://":                                              "no host",
		"redis://:secret@":                                      "no host",
		"redis://:secret@h:port":                                "port",
		"redis://:secret@h/x":                                   "database number",
		"redis://:secret@h?tls=yes":                             `nothing is known about "tls"`,
		"redis://u:pass/secret@h":                               "/ is written %2F",
		"redis://u:se/secret@h":                                 "/ is written %2F",
		"redis://:secret/x@h":                                   "/ is written %2F",
		"redis://u:12/secret@h":                                 "/ is written %2F",
		"redis://u:12#secret@h":                                 "# is %23",
		"redis://u:12?secret=@h":                                "? is %3F",
		"redis://u:a@b/secret@h":                                "@ is %40",
		"unix://redis.sock":                                     "slash",
		"redis://h?ca=/x":                                       "rediss://",
		"rediss://:secret@h?ca=/n/o":                            "trusted certificates",
	} {
		_, err := parseURL(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want something about %q", text, err, want)
		}
		if _, err := Open(Options{URL: text}); err == nil {
			t.Errorf("%s is opened", text)
		}
	}
}

// FuzzURL: whatever is wrong, the password is not in the message.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"h:1/2", "h:1,i:2", "h:x", "%zz", "h?db=x", "h?skip_verify=x", "h/a/b", "[::1", "h?ca=x"} {
		f.Add("redis", s)
	}
	f.Fuzz(func(t *testing.T, scheme, rest string) {
		if strings.Contains(scheme+rest, "hunter2") || strings.Contains(rest, "ca=") {
			return
		}
		if _, err := parseURL(scheme + "://u:hunter2@" + rest); err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Error(err)
		}
	})
}

// FuzzUnframe: anything may be in Redis under our key.
func FuzzUnframe(f *testing.F) {
	f.Add([]byte("body" + "head" + "\x04\x00\x00\x00" + version))
	f.Add([]byte("\x00\x00\x00\x00" + version))
	f.Add([]byte("x\xff\xff\xff\xff" + version))
	f.Add([]byte(version))
	f.Fuzz(func(t *testing.T, value []byte) {
		o, ok := unframe(value)
		if !ok {
			return
		}
		body, err := io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size))
		if err != nil {
			t.Fatal(err)
		}
		again := append(body, o.Head...)
		again = binary.LittleEndian.AppendUint32(again, uint32(len(o.Head)))
		if string(again)+version != string(value) {
			t.Errorf("%q came apart into %q and %q", value, body, o.Head)
		}
	})
}

// TestReadyWaits for the first attempt, and only for that.
func TestReadyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if h.ready(ctx) || time.Since(begin) != time.Second {
			t.Errorf("not tried: ready after %v", time.Since(begin))
		}
		go func() {
			time.Sleep(time.Second)
			h.checked(nil)
		}()
		if !h.ready(t.Context()) {
			t.Error("not ready after a good check")
		}
		h.failed("key", false, io.EOF)
		begin = time.Now()
		if h.ready(t.Context()) || time.Since(begin) != 0 {
			t.Error("a call waits for a server that is down")
		}
		h.checked(nil)
		h.close()
		if h.ready(t.Context()) {
			t.Error("ready after close")
		}
	})
}

// TestFailed: what is down after which errors.
func TestFailed(t *testing.T) {
	h := newHealth()
	h.checked(nil)
	for range slowCalls - 1 {
		h.failed("k", true, context.DeadlineExceeded)
	}
	h.worked()
	for range slowCalls - 1 {
		h.failed("k", true, context.DeadlineExceeded)
	}
	if !h.up() {
		t.Error("down although a call between was answered")
	}
	h.failed("the last", true, context.DeadlineExceeded)
	if h.up() || *h.probe.Load() != "the last" {
		t.Error("up after too many timeouts in a row")
	}
	select {
	case <-h.wake:
	default:
		t.Error("the supervisor is not told")
	}
	if !h.checked(nil) || !h.up() {
		t.Error("a good check changes nothing")
	}
	h.failed("k", false, errors.New("refused"))
	if h.up() || h.checked(io.EOF) {
		t.Error("up after a refusal")
	}
}

func TestBackoff(t *testing.T) {
	var b backoff
	want := firstPause
	for range 20 {
		if d := b.next(); d < want/2 || d > want {
			t.Errorf("a pause of %v, want up to %v", d, want)
		}
		want = min(2*want, longestPause)
	}
	b.reset()
	if d := b.next(); d > firstPause {
		t.Errorf("after a success the pause is %v", d)
	}
}
