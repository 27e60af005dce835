package arm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Images is what the config of a server of pictures says beside its engine.
type Images struct {
	Wait       time.Duration // of a visitor, for a conversion; 0: millrace's default
	Memory     int           // MiB that conversions may take together; 0: millrace's default
	OnlyImages bool          // files with other extensions are refused
}

// The names of millrace's two engines among the arms.
const (
	Tools    = "millrace"
	Embedded = "millrace-embedded"
)

// Pictures are the servers of bench/run images; the commands that it compares
// with (vips, cwebp) are no servers, and not among them. nginx serves what is
// converted already.
func Pictures() []Arm {
	return []Arm{
		{Name: "nginx", Title: "nginx", Program: Nginx, Any: true, Command: nginxCommand("")},
		{Name: Tools, Title: "millrace, tools", Program: Millrace, Any: true, Command: millraceImages("tools")},
		{Name: Embedded, Title: "millrace, embedded", Program: Millrace, Any: true, Variant: true, Command: millraceImages("embedded")},
	}
}

// millraceImages is its command with a config that converts the site's pictures
// to WebP when they are asked for, and never again in the background: what is
// measured is the work on demand.
func millraceImages(engine string) func(Env) ([]string, error) {
	return func(e Env) ([]string, error) {
		if err := os.WriteFile(e.Config(), []byte(imagesConfig(e, engine)), 0o644); err != nil {
			return nil, fmt.Errorf("writing the config: %w", err)
		}
		return []string{e.Binary, "serve", "--config", e.Config()}, nil
	}
}

// Config is the config of a millrace that has one.
func (e Env) Config() string { return filepath.Join(e.Dir, "millrace.yaml") }

func imagesConfig(e Env, engine string) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		_, _ = fmt.Fprintf(&b, format+"\n", args...) // a strings.Builder never fails
	}
	line("listen: [%q, %q]", e.Address, "unix:"+e.Socket())
	line("log: {format: off}")
	line("admin: {listen: %q}", "unix:"+e.Admin())
	line("sites:")
	line("  - routes:")
	line("      /:")
	line("        static: {root: %q}", e.Site)
	line("        images:")
	line("          engine: %s", engine)
	line("          formats: [webp]")
	line("          quality: 80")
	line("          no_best: true")
	line("          store: %q", filepath.Join(e.Dir, "variants"))
	if e.Images.Wait > 0 {
		line("          wait: %v", e.Images.Wait)
	}
	if e.Images.Memory > 0 {
		line("          memory: %dMiB", e.Images.Memory)
	}
	if e.Images.OnlyImages {
		line("          only_images: true")
	}
	return b.String()
}
