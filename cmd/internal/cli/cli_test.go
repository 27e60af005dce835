package cli_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"millrace/cmd/internal/cli"
)

// kind is a value that reads itself.
type kind string

func (k *kind) UnmarshalText(text []byte) error {
	*k = kind(text)
	if *k != "good" && *k != "best" {
		return fmt.Errorf("%q is no kind", text)
	}
	return nil
}

type common struct {
	Admin string `env:"TOOL_ADMIN" key:"admin" help:"Where."`
}

type tool struct {
	Serve struct {
		common `embed:""`
		Dir    string        `arg:"" optional:"" default:"." help:"What."`
		Listen []string      `short:"l" key:"listen" env:"TOOL_LISTEN" placeholder:"ADDR" help:"Where."`
		Header []string      `short:"H" sep:"none" help:"One."`
		NoLane bool          `short:"n" help:"Not."`
		Jobs   int           `short:"j" default:"4" help:"How many."`
		Limit  uint64        `help:"How much."`
		Rate   float64       `help:"How fast."`
		For    time.Duration `default:"10s" help:"How long."`
		Kind   kind          `key:"kind" env:"TOOL_KIND" help:"Which."`
		Kinds  []kind        `help:"Which."`
		Sizes  []int         `help:"How large."`
	} `cmd:"" help:"Serve."`
	Group struct {
		Serve struct {
			Key string   `help:"Which."`
			To  []string `arg:"" optional:"" help:"Where."`
		} `cmd:"" default:"withargs" help:"It."`
		Other struct {
			Out string `short:"o" required:"" placeholder:"FILE" help:"Where."`
			How string `arg:"" enum:"on,off" help:"How."`
		} `cmd:"" help:"Another."`
	} `cmd:"" help:"Several."`
	Words struct {
		One struct{} `cmd:"" help:"One."`
	} `cmd:"" help:"A group alone."`
	Version bool `hidden:"" alone:"" help:"Which."`
}

func parse(t *testing.T, args string) (*tool, *kong.Context, *kong.Flag, error) {
	t.Helper()
	target := new(tool)
	model, err := cli.New("tool", "A tool.", target)
	if err != nil {
		t.Fatal(err)
	}
	ctx, alone, err := cli.Parse(model, strings.Fields(args))
	return target, ctx, alone, err
}

// words are the verb that a command line named.
func words(ctx *kong.Context) string {
	if ctx == nil {
		return ""
	}
	return cli.Words(cli.Selected(ctx))
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"serve":                     "dir . listen [] header [] lane false jobs 4 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve -n --jobs 8 x":       "dir x listen [] header [] lane true jobs 8 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve x -nj8":              "dir x listen [] header [] lane true jobs 8 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve -j=8 --no-lane=no":   "dir . listen [] header [] lane false jobs 8 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve -l a,b --listen=c":   "dir . listen [a b c] header [] lane false jobs 4 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		`serve -l a\,b,c -H a,b`:    "dir . listen [a,b c] header [a,b] lane false jobs 4 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve --limit 7 --rate .5": "dir . listen [] header [] lane false jobs 4 limit 7 rate 0.5 for 10s kind  kinds [] sizes []",
		"serve --for 1m --kind best --kinds good,best --sizes 1,2": "dir . listen [] header [] lane false jobs 4 limit 0 rate 0 for 1m0s kind best kinds [good best] sizes [1 2]",
		"serve --jobs=-1 -- --x":                                   "dir --x listen [] header [] lane false jobs -1 limit 0 rate 0 for 10s kind  kinds [] sizes []",
		"serve -":                                                  "dir - listen [] header [] lane false jobs 4 limit 0 rate 0 for 10s kind  kinds [] sizes []",
	} {
		target, ctx, alone, err := parse(t, args)
		if err != nil || alone != nil || words(ctx) != "serve" {
			t.Errorf("%s: %v, %v, %v", args, words(ctx), alone, err)
			continue
		}
		s := target.Serve
		got := fmt.Sprintf("dir %s listen %v header %v lane %t jobs %d limit %d rate %v for %v kind %s kinds %v sizes %v",
			s.Dir, s.Listen, s.Header, s.NoLane, s.Jobs, s.Limit, s.Rate, s.For, s.Kind, s.Kinds, s.Sizes)
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", args, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for args, want := range map[string]string{
		"srve":                             `there is no command "srve", did you mean "serve"?`,
		"words on":                         `there is no command "words on", did you mean "one"?`,
		"words":                            `"tool words" needs one more word: one`,
		"serve a b":                        `unexpected argument "b"`,
		"serve --xyz":                      `unknown flag --xyz`,
		"serve --lisen x":                  `unknown flag --lisen, did you mean "--listen"?`,
		"serve -z":                         `unknown flag -z`,
		"serve -nz":                        `unknown flag -z`,
		"serve --key x":                    `unknown flag --key`,
		"serve --listen=":                  `--listen: a value is missing: --listen=ADDR,...`,
		"serve --listen":                   `--listen: a value is missing: --listen=ADDR,...`,
		"serve -l --no-lane":               `--listen: a value is missing: --listen=ADDR,...; one that begins with a dash is written --listen=--no-lane`,
		"serve --no-lane=maybe":            `--no-lane: bool value must be true, 1, yes, false, 0 or no but got "maybe"`,
		"serve --jobs x":                   `--jobs: "x" is not a whole number`,
		"serve --jobs=9999999999999999999": `--jobs: "9999999999999999999" is not a whole number`,
		"serve --limit=-1":                 `--limit: "-1" is not a whole number of 0 or more`,
		"serve --rate fast":                `--rate: "fast" is not a number`,
		"serve --for 5":                    `--for: "5" is not a duration: write a number and its unit, like 500ms, 30s or 5m`,
		"serve --kind bad":                 `--kind: "bad" is no kind`,
		"group --key x other on":           `--key is a flag of "tool group", not of "tool group other"`,
		"group other on":                   `--out=FILE is missing`,
		"group other -o x":                 `<how> is missing`,
		"group other -o x maybe":           `<how> must be one of "on","off" but got "maybe"`,
		"group other -o x on off":          `unexpected argument "off"`,
		"--":                               `"tool" needs one more word: serve, group, words`,
	} {
		_, _, _, err := parse(t, args)
		wrong, ok := errors.AsType[*cli.Error](err)
		if !ok || err.Error() != want || wrong.Node == nil {
			t.Errorf("%s: %v\nwant %s", args, err, want)
		}
	}
}

// TestDefault: the verb that runs when its group is named alone takes flags and
// arguments right behind the group's name.
func TestDefault(t *testing.T) {
	for _, args := range []string{"group --key k a b", "group serve a --key k b", "group a b --key=k", "group a --key k b", "group --key k a -- b"} {
		target, ctx, _, err := parse(t, args)
		if err != nil || words(ctx) != "group" || target.Group.Serve.Key != "k" || !slices.Equal(target.Group.Serve.To, []string{"a", "b"}) {
			t.Errorf("%s: %v, %+v", args, err, target.Group)
		}
	}
}

// TestAlone: --help and --version are answered whatever else is missing or wrong
// behind them.
func TestAlone(t *testing.T) {
	for args, want := range map[string]string{
		"--help": "help ", "-h": "help ", "group --help": "help group", "group other -h": "help group other", "--help serve --bad": "help serve",
		"words --help": "help words", "--version": "version ", "serve --version --jobs x": "version serve",
	} {
		_, ctx, alone, err := parse(t, args)
		if err != nil || alone == nil || alone.Name+" "+words(ctx) != want {
			t.Errorf("%s: %v, %v", args, alone, err)
		}
	}
}

// TestEnvironment: a variable gives what the command line does not; one that is
// bad matters only where it is used.
func TestEnvironment(t *testing.T) {
	t.Setenv("TOOL_LISTEN", "a,b")
	t.Setenv("TOOL_ADMIN", "")
	t.Setenv("TOOL_KIND", "bad")
	if _, _, _, err := parse(t, "words one"); err != nil {
		t.Error(err)
	}
	if _, _, _, err := parse(t, "serve"); err == nil || err.Error() != `--kind: "bad" is no kind (from TOOL_KIND="bad" in the environment)` {
		t.Error(err)
	}
	target, ctx, _, err := parse(t, "serve --kind good")
	if err != nil || !slices.Equal(target.Serve.Listen, []string{"a", "b"}) {
		t.Fatalf("%v, %v", err, target.Serve.Listen)
	}
	from := map[string]string{}
	for _, set := range cli.Settings(ctx) {
		from[set.Key] = set.From
	}
	if diff := cmp.Diff(map[string]string{"listen": "TOOL_LISTEN", "kind": "--kind"}, from); diff != "" {
		t.Error(diff)
	}
	target, _, _, err = parse(t, "serve --kind good -l c")
	if err != nil || !slices.Equal(target.Serve.Listen, []string{"c"}) {
		t.Errorf("%v, %v: the command line takes the place of the environment", err, target.Serve.Listen)
	}
}

func FuzzParse(f *testing.F) {
	for _, args := range []string{"serve -l a,b x", "group --key x other on", "serve -nj8 -- -x", "--help", "group other -o= on", "serve -=", "serve --=x"} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		_, ctx, _, err := parse(t, args)
		if (ctx == nil) != (err != nil) {
			t.Errorf("%q: the context %v and the error %v", args, ctx, err)
		}
	})
}
