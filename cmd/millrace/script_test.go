package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go/http3"
	"github.com/rogpeppe/go-internal/testscript"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/labcmd"
	"millrace/internal/ops/admin"
	"millrace/internal/process/confine"
)

// patience is how long a script waits for something that must happen. It only
// decides when a broken program is given up on.
const patience = 30 * time.Second

// sandboxed is the variable with which all scripts run in the sandbox:
// MILLRACE_TEST_SANDBOX=require.
const sandboxed = "MILLRACE_TEST_SANDBOX"

// waiting is how many scripts run at once, however few processors there are: half of the
// time they wait for a program.
const waiting = "4"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", waiting); err != nil { // the command line comes later, and wins
		panic(err)
	}
	lab := func() { os.Exit(labcmd.Main(os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr})) }
	testscript.Main(m, map[string]func(){"millrace": main, "millrace-lab": lab})
}

// TestScripts runs testdata/script on the program as it ships. See their
// README for the commands that they have on top of testscript's.
func TestScripts(t *testing.T) {
	t.Parallel() // with what else waits for a program
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       flag.Lookup("update").Value.String() == "true",
		Setup: func(e *testscript.Env) error {
			e.Setenv(admin.FolderVariable, filepath.Join(e.WorkDir, "run"))              // no other server of this machine is seen
			e.Setenv("GORACE", "atexit_sleep_ms=50")                                     // else every program waits a second
			if cache, err := exec.Command("go", "env", "GOCACHE").Output(); err == nil { // not in the script's own home
				e.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
			}
			examples, err := filepath.Abs(filepath.Join("..", "..", "examples"))
			if err != nil {
				return err
			}
			e.Setenv("EXAMPLES", examples)
			if how := os.Getenv(sandboxed); how != "" {
				e.Setenv("MILLRACE_SANDBOX", how)
			}
			e.Values[serversKey{}] = map[string]*running{}
			e.Values[upstreamsKey{}] = map[string]*fakeAPI{}
			e.Values[clientsKey{}] = map[string]*wsClient{}
			drips := &dripping{stop: make(chan struct{})}
			e.Values[drippingKey{}] = drips
			e.Defer(func() {
				close(drips.stop)
				drips.gone.Wait()
			})
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "race": // the race detector, with which embedded AVIF takes minutes
				return underRace, nil
			case "landlock":
				return confine.Possible() == nil, nil
			case "tools": // the commands of images: {engine: tools}
				_, webp := exec.LookPath("cwebp")
				_, avif := exec.LookPath("avifenc")
				return webp == nil && avif == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":       start,
			"cache":       startCache,
			"websocket":   startWS,
			"listener":    startListener,
			"connect":     connect,
			"talk":        talk,
			"upstream":    startUpstream,
			"tell":        tell,
			"asked":       asked,
			"talkative":   startTalkative,
			"sequential":  sequential,
			"signal":      signalServer,
			"await":       await,
			"ended":       ended,
			"fetch":       fetch,
			"eventually":  eventually,
			"picture":     makePicture,
			"keep":        capture,
			"sign":        sign,
			"ahead":       startAhead,
			"killworkers": killWorkers,
			"noroot":      dropRoot,
			"certificate": certificate,
			"occupy":      occupy,
			"stall":       stall,
			"busy":        busy,
			"drip":        drip,
			"dripped":     dripped,
			"lock":        lock,
			"begin":       begin,
			"unread":      unread,
			"collect":     collect,
			"collected":   collected,
		},
	})
}

type serversKey struct{}

// running is a server that a script has started.
type running struct {
	cmd  *exec.Cmd
	err  *watched
	done chan struct{} // closed when it has ended
}

func server(ts *testscript.TestScript, name string) *running {
	s := ts.Value(serversKey{}).(map[string]*running)[name]
	if s == nil {
		ts.Fatalf("no server %s was started", name)
	}
	return s
}

// watched keeps what is written to it and lets one goroutine wait for it.
type watched struct {
	mu   sync.Mutex
	text string
	more chan struct{}
}

// Write implements [io.Writer].
func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.text += string(p)
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// said is what nobody has taken.
func (w *watched) said() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text
}

// take waits for a match and takes it and all before it away.
func (w *watched) take(re *regexp.Regexp, done <-chan struct{}) (string, error) {
	late := time.After(patience)
	for ended := false; ; {
		w.mu.Lock()
		if at := re.FindStringIndex(w.text); at != nil {
			match := w.text[at[0]:at[1]]
			w.text = w.text[at[1]:]
			w.mu.Unlock()
			return match, nil
		}
		rest := w.text
		w.mu.Unlock()
		if ended {
			return "", errors.New("the server ended; it said:\n" + rest)
		}
		select {
		case <-w.more:
		case <-done:
			ended = true // what it wrote last has come before this
		case <-late:
			return "", errors.New("nothing more came; it said:\n" + rest)
		}
	}
}

var (
	bannerEnd = regexp.MustCompile(`(?s)^.*\n  stop .*?\n\n|(?m)\A\{.*"msg":"serving",.*\}\n`)
	bannerURL = regexp.MustCompile(`(?m)^  ((?:https?://|unix:)\S+)(?:  also by HTTP/3)?$`)
)

// start NAME [ARG...] runs `millrace serve ARG...` until its banner. The URLs
// it names are then in $NAME, $NAME2 and so on, its process in $NAMEPID; its standard output is in
// NAME.out and its banner in NAME.banner.
func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: start NAME [ARG...]")
	}
	startVerb(ts, "serve", args[0], args[1:])
}

// startVerb runs `millrace VERB ARG...` until its banner.
func startVerb(ts *testscript.TestScript, verb, name string, args []string) {
	s := startProgram(ts, name, append([]string{verb}, args...))
	banner, err := s.err.take(bannerEnd, s.done)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(name+".banner"), []byte(banner), 0o644))
	for i, u := range bannerAddresses(banner) {
		variable := name
		if i > 0 {
			variable += strconv.Itoa(i + 1)
		}
		ts.Setenv(variable, u)
	}
}

// bannerAddresses are the URLs in a banner, which may be JSON.
func bannerAddresses(banner string) (all []string) {
	var line struct{ Addresses []string }
	if json.Unmarshal([]byte(banner), &line) == nil {
		return line.Addresses
	}
	for _, u := range bannerURL.FindAllStringSubmatch(banner, -1) {
		all = append(all, u[1])
	}
	return all
}

// startProgram runs millrace until the script ends. Its standard output is in
// NAME.out, its process in $NAMEPID.
func startProgram(ts *testscript.TestScript, name string, args []string) *running {
	out, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	ts.Defer(func() { _ = out.Close() }) // the program has written it
	return startWith(ts, name, args, out, nil)
}

// startWith runs millrace with other places for what it says. Without one for
// its errors they are kept for await.
func startWith(ts *testscript.TestScript, name string, args []string, out, errs io.Writer) *running {
	s := &running{err: &watched{more: make(chan struct{}, 1)}, done: make(chan struct{})}
	if errs == nil {
		errs = s.err
	}
	s.cmd = exec.Command(lookPath(ts, "millrace"), args...)
	s.cmd.Dir, s.cmd.Env = ts.MkAbs("."), environment(ts)
	s.cmd.Stdout, s.cmd.Stderr = out, errs
	s.cmd.SysProcAttr = credentials(ts)
	ts.Check(s.cmd.Start())
	go func() { // ends with the server; Defer waits for it
		defer close(s.done)
		_ = s.cmd.Wait() // its exit status is looked at by ended
	}()
	ts.Defer(func() {
		_ = s.cmd.Process.Kill() // it may have ended long ago
		select {
		case <-s.done:
		case <-time.After(10 * time.Second):
			ts.Logf("%s has a successor, which still runs and holds its streams", name)
		}
	})
	ts.Value(serversKey{}).(map[string]*running)[name] = s
	ts.Setenv(name+"PID", strconv.Itoa(s.cmd.Process.Pid))
	return s
}

func lookPath(ts *testscript.TestScript, program string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path
		}
	}
	ts.Fatalf("%s is not in PATH", program)
	return ""
}

// environment is the script's own: testscript does not hand it out as a whole.
func environment(ts *testscript.TestScript) []string {
	names := []string{"PATH", "HOME", "TMPDIR", admin.FolderVariable, "GOCOVERDIR", "GORACE"}
	names = append(names, strings.Fields(ts.Getenv("PASS"))...)
	var out []string
	for _, n := range names {
		if v := ts.Getenv(n); v != "" {
			out = append(out, n+"="+v)
		}
	}
	return out
}

// signal NAME TERM|INT|HUP|USR1|USR2|STOP|CONT|KILL sends a signal.
func signalServer(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || signals[args[1]] == nil {
		ts.Fatalf("usage: signal NAME TERM|INT|HUP|USR1|USR2|STOP|CONT|KILL")
	}
	ts.Check(server(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

// await NAME REGEXP waits until the server has said so on its standard error,
// after what was awaited before. ended NAME STATUS waits for its end.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await NAME REGEXP")
	}
	s := server(ts, args[0])
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	_, err = s.err.take(re, s.done)
	ts.Check(err)
}

func ended(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME STATUS")
	}
	s := server(ts, args[0])
	select {
	case <-s.done:
	case <-time.After(patience):
		ts.Fatalf("%s has not ended; it said:\n%s", args[0], s.err.said())
	}
	if got := strconv.Itoa(s.cmd.ProcessState.ExitCode()); got != args[1] {
		ts.Fatalf("%s ended with %s, want %s; it said:\n%s", args[0], got, args[1], s.err.said())
	}
}

// fetch [-X METHOD] [-host HOST] [-ca FILE] [-h2 | -h3] [-H 'NAME: VALUE']... [-d BODY] URL [PATH]
// asks and writes status, header and body to the standard output. unix:SOCKET
// is a URL as well. It fails, as ! fetch expects, when there is no answer.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	set := flag.NewFlagSet("fetch", flag.ContinueOnError)
	method, host, ca := set.String("X", "GET", ""), set.String("host", "", ""), set.String("ca", "", "")
	header, body, h2, h3 := http.Header{}, set.String("d", "", ""), set.Bool("h2", false, ""), set.Bool("h3", false, "")
	set.Func("H", "", func(line string) error {
		name, value, _ := strings.Cut(line, ":")
		header.Add(name, strings.TrimSpace(value))
		return nil
	})
	if err := set.Parse(args); err != nil || set.NArg() < 1 || set.NArg() > 2 {
		ts.Fatalf("usage: fetch [-X METHOD] [-host HOST] [-ca FILE] [-h2 | -h3] [-H 'NAME: VALUE']... [-d BODY] URL [PATH]")
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true, ForceAttemptHTTP2: *h2}
	defer transport.CloseIdleConnections()
	base := set.Arg(0)
	if socket, ok := strings.CutPrefix(base, "unix:"); ok {
		base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", ts.MkAbs(socket))
		}
	}
	if *ca != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(ts.ReadFile(*ca)))
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	req, err := http.NewRequest(*method, strings.TrimSuffix(base, "/")+set.Arg(1), strings.NewReader(*body))
	ts.Check(err)
	req.Host, req.Header = *host, header
	client := &http.Client{Transport: transport, Timeout: patience, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if *h3 {
		quic := &http3.Transport{DisableCompression: true, TLSClientConfig: transport.TLSClientConfig}
		defer quic.Close()
		client.Transport = quic
	}
	resp, err := client.Do(req)
	if _, unreachable := errors.AsType[*url.Error](err); neg {
		if !unreachable {
			ts.Fatalf("an answer came: %+v", resp)
		}
		return
	}
	ts.Check(err)
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	ts.Check(err)
	var b strings.Builder
	b.WriteString(resp.Proto + " " + resp.Status + "\n")
	ts.Check(resp.Header.Write(&b))
	_, err = io.WriteString(ts.Stdout(), strings.ReplaceAll(b.String(), "\r", "")+"\n"+string(content))
	ts.Check(err)
}

// certificate PREFIX writes a self-signed certificate for 127.0.0.1 and
// localhost to PREFIXcert.pem and PREFIXkey.pem.
func certificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: certificate PREFIX")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+"cert.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+"key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// occupy NAME listens on a free port until the script ends; $NAME is its
// address.
func occupy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: occupy NAME")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = ln.Close() }) // nobody connects
	ts.Setenv(args[0], ln.Addr().String())
}

// stall URL PATH asks for PATH, reads one byte of the answer and then nothing
// until the script ends.
func stall(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stall URL PATH")
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(args[0], "http://"))
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() }) // the server has closed it
	_, err = io.WriteString(conn, "GET "+args[1]+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	ts.Check(err)
	ts.Check(conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	ts.Check(err)
}

// busy URL [PATH] asks for / or PATH again and again until the script ends.
func busy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: busy URL [PATH]")
	}
	target := "/"
	if len(args) == 2 {
		target = args[1]
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(args[0], "http://"))
	ts.Check(err)
	var both sync.WaitGroup
	ts.Defer(func() {
		_ = conn.Close() // the server may have closed it
		both.Wait()
	})
	both.Go(func() { // ends with the connection
		for {
			if _, err := io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: localhost\r\nReferer: https://a.test/?token=s3cret\r\n\r\n"); err != nil {
				return
			}
		}
	})
	both.Go(func() { _, _ = io.Copy(io.Discard, conn) }) // ends as well
}

// TestWatched: what is awaited is found in order, across writes, and an end
// without it is an error.
func TestWatched(t *testing.T) {
	w, done := &watched{more: make(chan struct{}, 1)}, make(chan struct{})
	for _, s := range []string{"one tw", "o three", " two"} {
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, re := range []string{"two", "t\\w+", "t\\w+"} {
		m, err := w.take(regexp.MustCompile(re), done)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if !slices.Equal(got, []string{"two", "three", "two"}) {
		t.Errorf("took %q", got)
	}
	close(done)
	if m, err := w.take(regexp.MustCompile("two"), done); err == nil {
		t.Errorf("took %q a second time", m)
	}
}
