package remote

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"millrace/store/memory"
)

func TestAddresses(t *testing.T) {
	private := []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.1.2.3",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
		"198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::127.0.0.1",
		"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:c0a8:101::1", "3fff::1",
		"fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "5f00::1", "4000::1",
	}
	public := []string{
		"1.1.1.1", "9.9.9.9", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.255",
		"::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888",
	}
	s := &Source{}
	for i, list := range [][]string{private, public} {
		for _, text := range list {
			err := s.control("tcp", net.JoinHostPort(text, "80"), nil)
			if (err == nil) != (i == 1) || err != nil && !errors.Is(err, errAddress) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for _, text := range []string{"", "localhost:80", "127.1:80", "0x7f000001:80"} {
		if s.control("tcp", text, nil) == nil {
			t.Errorf("%q is let through", text)
		}
	}
	if (&Source{o: Options{Private: true}}).control("tcp", "127.0.0.1:80", nil) != nil {
		t.Error("private: true is not heeded")
	}
}

// TestRebinding: a name that led to an allowed address once, and then to a
// private one, is refused when the connection is made. Addresses of this machine
// stand for both, so that nothing is sent elsewhere.
func TestRebinding(t *testing.T) {
	up := startUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		picture("one")(w, r)
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(up.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	s := openWith(t, Options{From: "http://rebinding.example.org:" + port}, memory.New(1<<20))
	names := &dns{next: []net.IP{net.IPv4(127, 0, 0, 1)}}
	dialer := &net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: names.dial}, Control: s.control}
	s.transport.DialContext = dialer.DialContext
	s.o.Private = true // the first time
	want(t, do(s, "/a.png"), 200, png("one"))
	s.o.Private = false // and now 127.0.0.1 is what it is
	before := up.asked.Load()
	want(t, do(s, "/b.png"), 502, "")
	if up.asked.Load() != before {
		t.Error("a private address was asked")
	}
	_, err = s.Original(httptestRequest("/b.png"))
	if !errors.Is(err, errAddress) {
		t.Errorf("the error is %v", err)
	}
}

// TestNothingIsLeftOver: what a host sends behind an answer is not taken for the
// next image, because a connection brings one answer only.
func TestNothingIsLeftOver(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in, behind := bufio.NewReader(c), ""
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					body := png(r.URL.Path)
					if behind != "" { // what was sent late, behind the answer to the request before
						body = behind
					}
					fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					behind = png("left over")
				}
			}()
		}
	}()
	s := open(t, Options{From: "http://" + l.Addr().String()})
	for _, path := range []string{"/a.png", "/b.png", "/c.png"} {
		want(t, do(s, path), 200, png(path))
	}
}
