package confine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func names(rules []Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.Path)
	}
	return all
}

func make1(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOptions(t *testing.T) {
	for text, on := range map[string]bool{"off": false, "false": false, "auto": true, "require": true} {
		var o Options
		if err := o.UnmarshalText([]byte(text)); err != nil || o.On() != on || len(o.Check()) > 0 {
			t.Errorf("%s: %v, %v, %v", text, o, err, o.Check())
		}
	}
	if err := new(Options).UnmarshalText([]byte("on")); err == nil {
		t.Error("on says neither auto nor require")
	}
	if len(Options{Mode: "always"}.Check()) != 1 {
		t.Error("a mode that is none")
	}
	if !(Options{Mode: Auto}).Same(Options{Mode: Require}) || (Options{}).Same(Options{Mode: Auto}) || (Options{Read: []string{"/a"}}).Same(Options{}) {
		t.Error("what is the same")
	}
}

func TestBroad(t *testing.T) {
	t.Setenv("HOME", "/srv/people/ann")
	for dir, want := range map[string]bool{
		"/": true, "/srv": true, "/etc": true, "/tmp": true, "/home/ann": true, "/srv/people/ann": true, "/var/log": true, "/usr/local": true, "/run/user/1000": true,
		"/srv/site": false, "/var/www": false, "/var/log/millrace": false, "/home/ann/site": false, "/etc/millrace": false,
	} {
		if Broad(dir) != want {
			t.Errorf("%s: %t", dir, !want)
		}
	}
}

// TestAround: where deployments switch links, what a link leads to may be another
// folder tomorrow.
func TestAround(t *testing.T) {
	top := t.TempDir()
	make1(t, filepath.Join(top, "app", "releases", "1"))
	current := filepath.Join(top, "app", "current")
	if err := os.Symlink("releases/1", current); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(top, "app"), filepath.Join(top, "app", "releases")}
	if got := names(Parents(current, Read, "root")); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Parents("/srv", Read, "root"); len(got) > 0 {
		t.Errorf("%v", got)
	}
	loop := filepath.Join(top, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if got := Parents(loop, Read, "root"); len(got) > 10 {
		t.Errorf("%d rules for a link to itself", len(got))
	}
}

// domain is one as Enter makes it, without the kernel's part.
func domain(t *testing.T, rules ...Rule) *Domain {
	t.Helper()
	d := &Domain{}
	for _, r := range rules {
		device, file, err := identify(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.EvalSymlinks(r.Path)
		if err != nil {
			t.Fatal(err)
		}
		d.Granted = append(d.Granted, Granted{path, r.Access, device, file})
	}
	return d
}

func TestBeyond(t *testing.T) {
	if Running == "" {
		t.Skip("files have no numbers here")
	}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(top, name) }
	make1(t, at("site/sub"))
	make1(t, at("sites"))
	make1(t, at("store"))
	if err := os.Symlink("sites", at("link")); err != nil {
		t.Fatal(err)
	}
	d := domain(t, Rule{Path: at("site"), Access: Read}, Rule{Path: at("store"), Access: Write})
	for name, c := range map[string]struct {
		rule   Rule
		beyond bool
	}{
		"the same":                  {Rule{Path: at("site"), Access: Read}, false},
		"below it":                  {Rule{Path: at("site/sub"), Access: Read}, false},
		"one that begins like it":   {Rule{Path: at("sites"), Access: Read}, true},
		"a link out of it":          {Rule{Path: at("link"), Access: Read}, true},
		"more than is allowed":      {Rule{Path: at("site"), Access: Write}, true},
		"two things at once":        {Rule{Path: at("store"), Access: Write | Read}, true},
		"the folder above":          {Rule{Path: top, Access: Read}, true},
		"one that is not there":     {Rule{Path: at("nothing"), Access: Read}, false},
		"one to be made in it":      {Rule{Path: at("store/new/deep"), Access: Write, Make: true}, false},
		"one to be made elsewhere":  {Rule{Path: at("site/new"), Access: Write, Make: true}, true},
		"one that is not necessary": {Rule{Path: at("sites"), Access: Read, Extra: true}, false},
	} {
		if got := d.Beyond([]Rule{c.rule}); len(got) > 0 != c.beyond {
			t.Errorf("%s: beyond the domain: %t", name, !c.beyond)
		}
	}
	// Another folder of the same name is another one for the kernel.
	if err := os.Rename(at("site"), at("old")); err != nil {
		t.Fatal(err)
	}
	make1(t, at("site"))
	if len(d.Beyond([]Rule{{Path: at("site"), Access: Read}})) == 0 {
		t.Error("the new folder is covered by the old one's rule")
	}
	if d.Reads() != 1 || d.Writes() != 1 {
		t.Error(d.Reads(), d.Writes())
	}
}

func TestWritable(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(top, name) }
	make1(t, at("store"))
	rules := []Rule{{Path: at("store"), Access: Write}, {Path: top, Access: Socket}, {Path: at("new/cache"), Access: Write, Make: true}}
	Make(rules)
	for file, want := range map[string]string{at("store/program"): at("store"), at("program"): "", at("new/program"): ""} {
		if got := Writable(rules, file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	make1(t, at("releases/1"))
	for link, to := range map[string]string{"store/current": "../releases/1", "link": "store/current", "plain": "releases/1"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{at("link/config"): at("store"), at("store/current/../1/config"): at("store"), at("plain/config"): "", at("releases/1/config"): ""} {
		if got := Writable(rules, file); got != want {
			t.Errorf("%s, by links: %q, want %q", file, got, want)
		}
	}
	if info, err := os.Stat(at("new/cache")); err != nil || Running != "" && info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
