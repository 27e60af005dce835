package cli

// This file knows which millrace this is.

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// VersionCommand is `millrace version`.
type VersionCommand struct {
	JSON bool `name:"json" help:"As JSON."`
}

// Version says which millrace this is, as far as the build knows.
type Version struct {
	Version  string `json:"version"`            // of the module, or dev
	Revision string `json:"revision,omitempty"` // the commit
	Time     string `json:"time,omitempty"`     // of the commit, RFC 3339
	Modified bool   `json:"modified"`           // the tree was changed since
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Read reads what the go command built in.
func Read() Version {
	v := Version{Version: "dev", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// Run prints the version.
func (c *VersionCommand) Run(s Streams) error {
	v := Read()
	if c.JSON {
		return s.WriteJSON(v)
	}
	return v.write(s.Out, s.program())
}

// write says it to people.
func (v Version) write(w io.Writer, program string) error {
	text := program + " " + v.Version + "\n"
	if v.Revision != "" {
		changed := ""
		if v.Modified {
			changed = ", with changes"
		}
		text += fmt.Sprintf("  commit  %s (%s%s)\n", v.Revision, v.Time, changed)
	}
	_, err := fmt.Fprintf(w, "%s  built   %s for %s\n", text, v.Go, v.Platform)
	return err
}
