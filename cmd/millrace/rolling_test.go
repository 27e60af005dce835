//go:build linux

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/cache/purge"
	"millrace/internal/process/servertest"
)

// olderCommit is the program that TestRollingUpgrade upgrades from. Change it when a
// release has been made: upgrades from the release before must work.
const olderCommit = "045b6a64dc594a57aae5db0a0e902923673449ba"

// olderProgram builds it.
func olderProgram(t *testing.T) string {
	t.Helper()
	if os.Getenv("MILLRACE_ROLLING") == "" {
		t.Skip("builds another program, which takes a minute: MILLRACE_ROLLING=1 does it")
	}
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skip("not a git checkout")
	}
	git := func(args ...string) *exec.Cmd {
		cmd := exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
		cmd.Dir = strings.TrimSpace(string(root))
		return cmd
	}
	if git("cat-file", "-e", olderCommit+"^{commit}").Run() != nil {
		t.Skipf("the history here does not go back to %.12s: git fetch --unshallow", olderCommit)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "older.tar")
	source := filepath.Join(dir, "source")
	program := filepath.Join(dir, "millrace")
	if err := os.Mkdir(source, 0o700); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-pgo=off", "-o", program, "./cmd/millrace")
	build.Dir = source
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{git("archive", "-o", archive, olderCommit), exec.Command("tar", "-xf", archive, "-C", source), build} {
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, text)
		}
	}
	return program
}

// TestRollingUpgrade: machines of an older program and of this one work side by side, on
// one Redis and one NATS: what one has fetched the other has, purges and publications of
// one reach the other, and a purge of one thing costs nothing else. Each machine is
// upgraded in turn, with its disk, and the last goes back to the older program.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel() // with what else waits for a program
	older := olderProgram(t)
	ports := freePorts(t, 6)
	w := &histWorld{t: t, dbs: [2]*dbServer{newDB(t, ports[0]), nil}, streams: newStreams(t, ports[1:4])}
	w.log = &chronicle{began: time.Now(), publications: map[string]*publication{}}
	origin := httptest.NewServer(&w.origin)
	defer origin.Close()
	w.dbs[0].start()
	w.streams.start(0)
	for i := range 2 {
		m := newMachine(t, fmt.Sprint("machine ", i), ports[4+i])
		m.program = older
		m.config = fmt.Sprintf(`listen: %s
log: {format: off}
admin: {listen: '%s'}
sites:
- routes:
    /: {cache: {to: %q, shared: "redis://%s", disk: kept}}
    /live/: {websocket: {channels: {bus: "nats://%s", history: {messages: 1000, age: 1h}}}}
`, m.addr, m.admin, origin.URL, w.dbs[0].addr(), w.streams.addr(0))
		m.start()
		w.machines = append(w.machines, m)
	}
	stages := []struct {
		name     string
		programs [2]string
	}{{"both are old", [2]string{older, older}}, {"one is new", [2]string{"", older}}, {"both are new", [2]string{"", ""}}, {"one is old again", [2]string{older, ""}}}
	var subscribers []*view
	for i := range 2 {
		v := &view{name: fmt.Sprint("subscriber ", i), channel: "news", log: w.log, ids: map[string]bool{}, known: map[string]bool{}, placed: map[uint64]bool{}}
		subscribers = append(subscribers, v)
		var running sync.WaitGroup
		running.Go(func() {
			for t.Context().Err() == nil {
				v.talk(t.Context(), w.machines[i])
				time.Sleep(10 * time.Millisecond)
			}
		})
		t.Cleanup(running.Wait)
	}
	for n, stage := range stages {
		for i, m := range w.machines {
			if m.program == stage.programs[i] {
				continue
			}
			w.keepsItsDisk(m, func() {
				m.kill()
				m.program = stage.programs[i]
				m.start()
			})
		}
		w.sideBySide(stage.name, n, subscribers)
	}
	for _, text := range w.log.wrong {
		t.Error(text)
	}
}

// keepsItsDisk starts a machine anew: what was on its disk is there, and what was purged
// is not.
func (w *histWorld) keepsItsDisk(m *machine, anew func()) {
	w.t.Helper()
	w.eventually(m.name+" has a page on its disk", func() bool {
		version, _, err := m.read(w.t.Context(), plainPage, 0)
		found := false
		_ = filepath.WalkDir(filepath.Join(m.dir, "kept"), func(path string, d os.DirEntry, err error) error { // files come and go
			if err == nil && d.Type().IsRegular() {
				text, _ := os.ReadFile(path)
				found = found || strings.Contains(string(text), fmt.Sprintf("%s %d\n", pagePath(plainPage), version))
			}
			return nil
		})
		return err == nil && found
	})
	w.edit(parityPage)
	w.purgeAt(w.t.Context(), 0, purge.Selector{Tag: fmt.Sprint("page", parityPage), Hard: true}, []int{parityPage})
	want := int(w.origin.version[parityPage].Load())
	w.eventually("it has heard of a purge", func() bool {
		version, _, err := m.read(w.t.Context(), parityPage, 0)
		return err == nil && version == want
	})
	anew()
	if version, how, err := m.read(w.t.Context(), parityPage, 0); err != nil || version != want {
		w.t.Errorf("%s, started anew: version %d, want %d, %s, %v", m.name, version, want, how, err)
	}
	version, how, err := m.read(w.t.Context(), plainPage, 0)
	if err != nil || int64(version) != w.origin.version[plainPage].Load() {
		w.t.Errorf("%s, started anew: version %d, %s, %v", m.name, version, how, err)
	}
	// As long as it has not heard of all purges it has to validate what it has.
	if !strings.Contains(how, "detail=disk") && !strings.Contains(how, "detail=shared") && !strings.Contains(how, "fwd-status=304") {
		w.t.Errorf("%s, started anew, does not find what it had on its disk: %s", m.name, how)
	}
}

func (w *histWorld) eventually(what string, is func() bool) {
	w.t.Helper()
	servertest.Eventually(w.t, what, is)
}

// sideBySide has each machine do something that the other must see.
func (w *histWorld) sideBySide(stage string, n int, subscribers []*view) {
	t := w.t
	t.Helper()
	w.settle(t.Context())
	for i, from := range w.machines {
		to := w.machines[1-i]
		// What one fetches the other has.
		w.purgeAt(t.Context(), i, purge.Selector{All: true, Hard: true}, nil)
		w.settle(t.Context())
		w.eventually(fmt.Sprintf("%s: %s has what %s has fetched", stage, to.name, from.name), func() bool {
			w.purgeAt(t.Context(), i, purge.Selector{URL: "http://s" + pagePath(plainPage), Hard: true}, nil)
			w.settle(t.Context())
			_, _, _ = from.read(t.Context(), plainPage, 0)
			time.Sleep(50 * time.Millisecond) // it is written in the background
			_, how, err := to.read(t.Context(), plainPage, 0)
			return err == nil && strings.Contains(how, "detail=shared")
		})
		// A purge of another page costs this one nothing.
		for _, m := range w.machines {
			w.eventually(m.name+" has it in memory", func() bool {
				_, how, err := m.read(t.Context(), plainPage, 0)
				return err == nil && strings.Contains(how, "hit")
			})
		}
		asked := w.origin.asked.Load()
		w.purgeAt(t.Context(), i, purge.Selector{Tag: "nobody has it", Hard: true}, nil)
		time.Sleep(200 * time.Millisecond) // what is sent has come
		for _, m := range w.machines {
			if _, how, err := m.read(t.Context(), plainPage, 0); err != nil || !strings.Contains(how, "hit") || w.origin.asked.Load() != asked {
				t.Errorf("%s: a purge of something else at %s: %s has to ask the origin: %s, %v", stage, from.name, m.name, how, err)
			}
		}
		// What one publishes comes to the subscribers of both.
		id := fmt.Sprintf("%d-%d", n, i)
		p := &publication{id: id, channel: "news", machine: i}
		w.log.publications[id] = p
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		w.eventually(stage+": a publication gets a place", func() bool { return w.publish(client, p) && p.offset > 0 })
		for _, v := range subscribers {
			w.eventually(fmt.Sprintf("%s: %s gets %s", stage, v.name, id), func() bool {
				v.mu.Lock()
				defer v.mu.Unlock()
				return len(v.got) > 0 && v.got[len(v.got)-1].id == id || !v.ready
			})
		}
	}
}
