package labcmd

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/lab/load"
)

// Request is what the verbs that load a server have in common.
type Request struct {
	Connections int           `short:"c" default:"50" placeholder:"N" help:"Connections open at once."`
	Threads     int           `short:"t" placeholder:"N" help:"Threads of the generator. Default 1, more for more than 10,000 connections."`
	Paths       string        `placeholder:"FILE" complete:"file" help:"Ask for the paths in this file in turn, one to a line (whole URLs do as well)."`
	Header      []string      `short:"H" sep:"none" placeholder:"'NAME: VALUE'" help:"Send this header. May be repeated."`
	Protocol    load.Protocol `placeholder:"NAME" values:"http1,http2,http3,websocket" help:"Speak http1, http2, http3 or websocket. Default: by the URL."`
	HTTP2       bool          `name:"http2" help:"The same as --protocol http2."`
	HTTP3       bool          `name:"http3" help:"The same as --protocol http3."`
	WS          bool          `name:"ws" help:"Upgrade to WebSocket; send a message and await it back, again and again."`
	Message     string        `placeholder:"TEXT" help:"What to send over WebSocket."`
	Streams     int           `placeholder:"N" help:"Requests in flight on one HTTP/2 or HTTP/3 connection. Default 1."`
	Timeout     time.Duration `default:"10s" placeholder:"TIME" help:"An answer that takes longer is an error."`

	Method      string   `short:"X" placeholder:"NAME" help:"The method. Default GET, and POST with a body."`
	Body        string   `sep:"none" placeholder:"TEXT" help:"Send this body."`
	BodyFile    string   `placeholder:"FILE" complete:"file" help:"Send this file as the body."`
	Form        []string `sep:"none" placeholder:"NAME=VALUE" help:"Send this field of a form. May be repeated."`
	Data        string   `placeholder:"FILE" complete:"file" help:"Rows of values (CSV): {{column}} in paths, headers, bodies and expectations stands for one, of the next row each time. {{number}} is a number that no other request has."`
	Scenario    string   `placeholder:"FILE" complete:"file" help:"Requests that belong together (YAML), with values taken from answers. Each connection goes through them as a new visitor, again and again."`
	Expect      []string `sep:"none" placeholder:"WHAT" help:"What a right answer has: 'status 200,304', 'status 2xx', 'header Name: value', 'body contains TEXT', 'json PATH = VALUE'. May be repeated."`
	Cookies     bool     `help:"Keep cookies, for each connection its own."`
	NoKeepalive bool     `name:"no-keepalive" help:"Open a connection for each request."`

	Insecure  bool   `short:"k" help:"Accept any certificate."`
	CACert    string `name:"cacert" placeholder:"FILE" complete:"file" help:"Trust the authorities in this file (PEM), and no others."`
	Cert      string `placeholder:"FILE" complete:"file" help:"Show this certificate as the client's (PEM), with its key here or in --key."`
	Key       string `placeholder:"FILE" complete:"file" help:"The key of --cert."`
	SNI       string `name:"sni" placeholder:"NAME" help:"Ask for this name in the TLS handshake, and check the certificate against it. Default: the URL's host."`
	ConnectTo string `placeholder:"HOST:PORT" help:"Connect there, whatever host the URL names."`
}

// target is a URL as the protocol has it: --ws makes http: into ws:.
func (r Request) target(url string) string {
	if rest, ok := strings.CutPrefix(url, "http"); ok && (r.WS || r.Protocol == load.WebSocket) {
		return "ws" + rest // https: becomes wss:
	}
	return url
}

// config makes a load of what was typed.
func (r Request) config() (load.Config, error) {
	c := load.Config{
		Connections: r.Connections, Threads: r.Threads, Protocol: r.Protocol, Streams: r.Streams,
		Timeout: r.Timeout, Insecure: r.Insecure, Expect: r.Expect, Cookies: r.Cookies,
		OneShot: r.NoKeepalive, ConnectTo: r.ConnectTo,
	}
	if r.Connections < 1 {
		return c, cli.Usage(fmt.Sprintf("%d connections load nothing", r.Connections), "--connections 50")
	}
	spoken := 0
	for _, p := range []struct {
		asked    bool
		protocol load.Protocol
	}{{r.WS, load.WebSocket}, {r.HTTP2, load.HTTP2}, {r.HTTP3, load.HTTP3}, {r.Protocol != "", r.Protocol}} {
		if p.asked {
			c.Protocol = p.protocol
			spoken++
		}
	}
	if spoken > 1 {
		return c, cli.Usage("--protocol, --http2, --http3 and --ws: only one of them", "leave the others out")
	}
	if r.Message != "" {
		c.Message = []byte(r.Message)
	}
	var err error
	if c.Header, err = headers(r.Header); err != nil {
		return c, err
	}
	if r.Paths != "" {
		if c.Paths, err = readPaths(r.Paths); err != nil {
			return c, err
		}
	}
	if c.TLS, err = r.tls(); err != nil {
		return c, err
	}
	return c, r.sent(&c)
}

// sent fills in what is sent.
func (r Request) sent(c *load.Config) (err error) {
	c.Request = load.Step{Method: r.Method, Form: r.Form}
	bodies := 0
	for _, given := range []bool{r.Body != "", r.BodyFile != "", r.Form != nil} {
		if given {
			bodies++
		}
	}
	switch {
	case bodies > 1:
		return cli.Usage("--body, --body-file and --form: a request has one body", "leave the others out")
	case r.Scenario != "" && (bodies > 0 || r.Method != "" || r.Paths != ""):
		return cli.Usage("--scenario says what is sent", "leave --paths, --method, --body, --body-file and --form out")
	case r.Body != "":
		c.Request.Body = &r.Body
	case r.BodyFile != "":
		text, err := os.ReadFile(r.BodyFile)
		if err != nil {
			return fmt.Errorf("reading the body: %w", err)
		}
		body := string(text)
		c.Request.Body = &body
	}
	if r.Scenario != "" {
		if c.Steps, err = readFile(r.Scenario, load.ReadScenario); err != nil {
			return err
		}
	}
	if r.Data != "" {
		c.Data, err = readFile(r.Data, load.ReadData)
	}
	return err
}

// readFile reads a file, whose name an error has.
func readFile[T any](name string, read func(io.Reader) (T, error)) (T, error) {
	f, err := os.Open(name)
	if err != nil {
		var none T
		return none, err
	}
	defer f.Close()
	v, err := read(f)
	if err != nil {
		return v, fmt.Errorf("%s: %w", name, err)
	}
	return v, nil
}

// tls is what handshakes are made with; nil: nothing was said.
func (r Request) tls() (*tls.Config, error) {
	if r.CACert == "" && r.Cert == "" && r.Key == "" && r.SNI == "" {
		return nil, nil
	}
	c := &tls.Config{ServerName: r.SNI}
	if r.CACert != "" {
		text, err := os.ReadFile(r.CACert)
		if err != nil {
			return nil, fmt.Errorf("reading the authorities: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, cli.Usage(r.CACert+" has no certificate", "it should hold some in PEM: -----BEGIN CERTIFICATE-----")
		}
	}
	if r.Key != "" && r.Cert == "" {
		return nil, cli.Usage("--key without its certificate", "--cert FILE names it")
	}
	if r.Cert != "" {
		key := r.Key
		if key == "" {
			key = r.Cert
		}
		pair, err := tls.LoadX509KeyPair(r.Cert, key)
		if err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// stages reads '10s:100,1m:1000': in ten seconds to 100 requests/s, then in a minute
// to 1,000.
func stages(list []string) (out []load.Stage, err error) {
	for _, text := range list {
		length, rate, ok := strings.Cut(text, ":")
		var s load.Stage
		if ok {
			if s.Length, err = time.ParseDuration(length); err == nil {
				s.Rate, err = strconv.ParseFloat(rate, 64)
			}
		}
		if !ok || err != nil {
			return nil, cli.Usage(fmt.Sprintf("%q is not a stage", text), "write a time and the rate at its end: --stages 10s:100,1m:1000,10s:0")
		}
		out = append(out, s)
	}
	return out, nil
}

// headers reads 'Name: value' lines as curl's -H takes them.
func headers(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, cli.Usage(fmt.Sprintf("%q is not a header", line), `write it as 'Name: value', for instance --header 'Accept-Encoding: gzip'`)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// maxPaths bounds a list of paths: each becomes a prebuilt request.
const maxPaths = 100_000

// readPaths reads a list of paths or URLs, one to a line; # begins a comment.
func readPaths(file string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the paths: %w", err)
	}
	defer f.Close()
	var out []string
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, rest, ok := strings.Cut(line, "://"); ok {
			_, path, _ := strings.Cut(rest, "/")
			line = "/" + path
		}
		if !strings.HasPrefix(line, "/") {
			return nil, fmt.Errorf("%s:%d: %q is neither a path that begins with / nor a URL", file, n, line)
		}
		if out = append(out, line); len(out) > maxPaths {
			return nil, fmt.Errorf("%s has more than %d paths", file, maxPaths)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading the paths: %w", err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no paths: write one to a line", file)
	}
	return out, nil
}
