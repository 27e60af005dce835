//go:build unix

package admin

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"millrace/internal/observe/meter"
)

// leaveDead makes a socket as a process that was killed leaves it.
func leaveDead(t *testing.T, path string) {
	t.Helper()
	l, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultSocket(t *testing.T) {
	dir := shortDir(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("TMPDIR", dir)
	a, err := New(Options{}, Deps{Meters: meter.New()})
	if err != nil {
		t.Fatal(err)
	}
	path, ok := strings.CutPrefix(a.Addr(), "unix:"+dir+"/millrace/")
	if !ok || a.Warning() != "" {
		t.Errorf("address %s, warning %q", a.Addr(), a.Warning())
	}
	for name, want := range map[string]fs.FileMode{"": 0o700 | fs.ModeDir, path: 0o600 | fs.ModeSocket} {
		info, err := os.Stat(filepath.Join(dir, "millrace", name))
		if err != nil || info.Mode() != want {
			t.Errorf("%q has mode %v (%v), want %v", name, info.Mode(), err, want)
		}
	}
	// The same process number again: containers that share the folder.
	b, err := New(Options{}, Deps{Meters: meter.New()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Find()
	want := []string{a.Addr(), b.Addr()}
	slices.Sort(got)
	slices.Sort(want)
	if err != nil || a.Addr() == b.Addr() || !containsAll(got, want) {
		t.Errorf("found %v (%v), want %v", got, err, want)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "millrace")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

// containsAll allows for servers that really run on the machine of the test.
func containsAll(list, want []string) bool {
	return !slices.ContainsFunc(want, func(s string) bool { return !slices.Contains(list, s) })
}

func TestFolders(t *testing.T) {
	base := shortDir(t)
	dir := func(name string) string {
		p := filepath.Join(base, name)
		if err := os.MkdirAll(p, 0o700); err != nil {
			t.Fatal(err)
		}
		return p
	}
	missing := filepath.Join(base, "missing")
	long := dir(strings.Repeat("l", 110))
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := dir("open")
	if err := errors.Join(os.Mkdir(open+"/millrace", 0o700), os.Chmod(open+"/millrace", 0o777)); err != nil {
		t.Fatal(err)
	}
	linked := dir("linked")
	if err := os.Symlink(dir("elsewhere"), linked+"/millrace"); err != nil {
		t.Fatal(err)
	}
	me := os.Getuid()
	for name, tt := range map[string]struct {
		p    places
		want string // folder below base; empty for an error
	}{
		"xdg first":           {places{"", dir("xdg"), dir("run"), dir("tmp"), me}, "xdg/millrace"},
		"no xdg":              {places{"", "", dir("run"), dir("tmp"), me}, "run/millrace"},
		"relative xdg":        {places{"", "xdg", dir("run"), dir("tmp"), me}, "run/millrace"},
		"missing xdg and run": {places{"", missing, missing, dir("tmp"), me}, "tmp/millrace-UID"},
		"long xdg":            {places{"", long, missing, dir("tmp"), me}, "tmp/millrace-UID"},
		"writable by all":     {places{"", open, missing, dir("tmp"), me}, "tmp/millrace-UID"},
		"a link":              {places{"", linked, missing, dir("tmp"), me}, "tmp/millrace-UID"},
		"file for a folder":   {places{"", file, missing, dir("tmp"), me}, "tmp/millrace-UID"},
		"nothing works":       {places{"", missing, missing, missing, me}, ""},
		"all of another user": {places{"", dir("xdg"), dir("run"), dir("tmp"), me + 1}, ""},
		"named":               {places{dir("named"), dir("xdg"), dir("run"), dir("tmp"), me}, "named"},
		"named, and made":     {places{base + "/made", dir("xdg"), dir("run"), dir("tmp"), me}, "made"},
		"named, but a file":   {places{file, dir("xdg"), dir("run"), dir("tmp"), me}, ""},
	} {
		l, err := listenDefault(tt.p)
		if tt.want == "" {
			if !errors.Is(err, errNoFolder) {
				t.Errorf("%s: error %v, want %v", name, err, errNoFolder)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := strings.ReplaceAll(tt.want, "millrace-UID", filepath.Base(tt.p.folders()[len(tt.p.folders())-1]))
		if got := filepath.Dir(strings.TrimPrefix(l.addr, "unix:")); got != filepath.Join(base, want) {
			t.Errorf("%s: folder %s, want %s", name, got, want)
		}
		l.Close()
		l.cleanup()
	}
}

func TestFind(t *testing.T) {
	base := shortDir(t)
	p := places{xdg: base + "/x", run: base + "/r", temp: base, uid: os.Getuid()}
	if got, err := p.find(); len(got) != 0 || err != nil {
		t.Fatalf("found %v (%v) where nothing is", got, err)
	}
	var want []string
	for _, folder := range p.folders() {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := listenUnix(folder + "/1.sock")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		want = append(want, l.addr)
		leaveDead(t, folder+"/2.sock")
		if err := os.WriteFile(folder+"/3.sock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := p.find(); !slices.Equal(got, want) || err != nil {
		t.Errorf("found %v (%v), want %v", got, err, want)
	}
	// A stranger may have made the folders that anybody can make, and wait
	// there for a command; those that only root can make are fine.
	p.uid++
	got, err := p.find()
	if !slices.Equal(got, want[1:2]) || err == nil {
		t.Errorf("in folders of another user: found %v (%v), want %v and an error", got, err, want[1:2])
	}
}

func TestDeadSocketIsReplaced(t *testing.T) {
	path := shortDir(t) + "/admin.sock"
	leaveDead(t, path)
	a, c, url := start(t, Options{Listen: "unix:" + path}, Deps{})
	if a.Addr() != "unix:"+path {
		t.Errorf("address %s", a.Addr())
	}
	if status, body := ask(t, c, request(t, "GET", url+"/healthz")); status != 200 {
		t.Errorf("status %d: %s", status, body)
	}
}

func TestDeadSocketsAreCleared(t *testing.T) {
	base := shortDir(t)
	p := places{xdg: base, run: base, temp: base, uid: os.Getuid()}
	if err := os.Mkdir(base+"/millrace", 0o700); err != nil {
		t.Fatal(err)
	}
	leaveDead(t, base+"/millrace/999999999.sock")
	l, err := listenDefault(p)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := os.Lstat(base + "/millrace/999999999.sock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the dead socket is still there (%v)", err)
	}
}

func TestLiveSocketIsRespected(t *testing.T) {
	path := shortDir(t) + "/admin.sock"
	_, c, url := start(t, Options{Listen: "unix:" + path}, Deps{})
	b, err := New(Options{Listen: "unix:" + path}, Deps{Meters: meter.New()})
	if !errors.Is(err, errInUse) {
		b.Close()
		t.Fatalf("error %v, want %v", err, errInUse)
	}
	if status, _ := ask(t, c, request(t, "GET", url+"/healthz")); status != 200 {
		t.Errorf("the server that was there answers %d", status)
	}
}

func TestOtherFilesAreRespected(t *testing.T) {
	path := shortDir(t) + "/precious"
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := New(Options{Listen: "unix:" + path}, Deps{Meters: meter.New()}); err == nil {
		a.Close()
		t.Error("listening on a plain file worked")
	}
	if b, err := os.ReadFile(path); string(b) != "data" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
}

// Close must leave alone what another process put in its place.
func TestCloseRemovesOnlyItsOwn(t *testing.T) {
	path := shortDir(t) + "/admin.sock"
	a, err := New(Options{Listen: "unix:" + path}, Deps{Meters: meter.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".old"); err != nil { // keeps the inode in use
		t.Fatal(err)
	}
	other, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if alive, err := answers(path); !alive || err != nil {
		t.Errorf("the other server's socket is gone (%v)", err)
	}
}

// Of many that find the same dead socket, one gets it.
func TestStartRace(t *testing.T) {
	path := shortDir(t) + "/admin.sock"
	leaveDead(t, path)
	var wg sync.WaitGroup
	got := make([]*listener, 8)
	for i := range got {
		wg.Go(func() {
			l, err := listenUnix(path)
			if err != nil && !errors.Is(err, errInUse) {
				t.Error(err)
			}
			got[i] = l
		})
	}
	wg.Wait()
	n := 0
	for _, l := range got {
		if l != nil {
			n++
			defer l.Close()
		}
	}
	if alive, err := answers(path); n != 1 || !alive {
		t.Errorf("%d listeners, socket alive %t (%v); want one that is", n, alive, err)
	}
}

// There is no moment in which a stranger could connect, whatever the umask.
func TestModeFromTheStart(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux takes the mode of a socket before it is bound")
	}
	dir := shortDir(t)
	defer syscall.Umask(syscall.Umask(0))
	l, err := bind(dir + "/a.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(dir + "/a.sock"); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v (%v), want %o", info.Mode(), err, socketMode)
	}
	syscall.Umask(0o777)
	u, err := listenUnix(dir + "/b.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if info, err := os.Stat(dir + "/b.sock"); err != nil || info.Mode().Perm() != socketMode {
		t.Errorf("mode %v (%v), want %o", info.Mode(), err, socketMode)
	}
}

func TestRelativeSocket(t *testing.T) {
	t.Chdir(t.TempDir())
	l, err := listenUnix("a.sock")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("unix", "a.sock")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.Close()
	l.cleanup()
}

// Where nobody asked for a socket by name, none is better than no server.
func TestNoFolderIsNoError(t *testing.T) {
	file := filepath.Join(shortDir(t), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(FolderVariable, file)
	a, err := New(Options{}, Deps{Meters: meter.New()})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--admin unix:/path", "--admin off", FolderVariable, file + " is not a folder"} {
		if !strings.Contains(a.Warning(), want) {
			t.Errorf("the warning %q does not say %q", a.Warning(), want)
		}
	}
	if a.Addr() != "" || a.Serve() != nil || a.Close() != nil {
		t.Error("an admin listener without a socket does something")
	}
	if a, err := New(Options{Listen: unixPrefix + file + "/a.sock"}, Deps{Meters: meter.New()}); err == nil {
		a.Close()
		t.Error("a socket that was asked for by name is missing without an error")
	}
}
