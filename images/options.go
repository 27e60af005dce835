package images

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"

	"millrace/images/params"
	"millrace/images/remote"
	"millrace/internal/bytesize"
	"millrace/internal/process/gogc"
	"millrace/store/disk"
)

// Options of the job. The zero value converts as most want it.
type Options struct {
	// Formats that are made for browsers that take them: webp, avif. Default
	// both; of those a browser takes, and the original, the smallest is sent.
	Formats []string `yaml:"formats"`
	// Quality of lossy formats, 1 to 100, on the scale of WebP. Default 80.
	Quality int `yaml:"quality"`
	// Extensions of the files that are converted. Default jpg, jpeg, png, gif,
	// webp, bmp; tiff, tif and avif can be added.
	Extensions []string `yaml:"extensions"`
	// OnlyImages refuses files with other extensions, with the answer
	// "File extension not allowed!" and status 400, instead of serving them.
	OnlyImages bool `yaml:"only_images"`
	// KeepCopyright keeps the copyright and the artist of EXIF. All other
	// metadata but the colour profile is left out of variants.
	KeepCopyright bool `yaml:"keep_copyright"`
	// SRGB converts the colours of variants to sRGB, so that they have no profile. Default: a
	// profile of RGB is kept.
	SRGB bool `yaml:"srgb"`
	// StripOriginals is what is taken out of originals before they are sent as they are: gps,
	// the place that they were made at. Those that it cannot be taken out of, such as ones
	// larger than MaxSize, are refused then. Default: they are sent as they are. Variants never have it.
	StripOriginals string `yaml:"strip_originals"`
	// SVG is what is done with drawings, files named .svg: sanitize leaves out what runs or loads
	// anything, download has browsers save them instead of showing them. Default: they are sent
	// as they are.
	SVG string `yaml:"svg"`
	// NearLossless allows changes in drawings and screenshots that nobody
	// sees, 1 to 100 (none). Default 60.
	NearLossless int `yaml:"near_lossless"`
	// Engine: auto (the commands cwebp, gif2webp and avifenc where they are
	// installed, else what is built in), tools or embedded. Default auto.
	Engine string `yaml:"engine"`

	// Wait is how long a first visitor waits for a conversion, if it is
	// predicted to be done by then; the original is sent otherwise. Default 250ms.
	Wait time.Duration `yaml:"wait" negative:"never wait"`
	// Workers is how many conversions run at once. Default: the number of CPUs.
	Workers int `yaml:"workers"`
	// Memory is what all processes that convert may take together, idle ones
	// and commands included; the server itself is not. An image that needs more
	// is served as it is, or in another format. Default a quarter of the
	// machine's memory, or of its control group's, from 512MiB to 2GiB. With
	// 512MiB what is built in makes WebP of photographs of 35 megapixels, of
	// opaque PNGs of 30 and of PNGs with transparency of 6, and AVIF of 3.5; with
	// 2GiB of all that 50, of transparency 26, and AVIF of 18. The commands take
	// half as much for transparency, and a quarter for AVIF.
	Memory bytesize.Size `yaml:"memory"`
	// Queue is how many conversions may wait. Default 1000.
	Queue int `yaml:"queue"`
	// Background is what conversions get of the processor that nobody waits
	// for: idle, what nothing else wants, or normal, a tenth of a core beside
	// others. Default idle; on a machine that is always busy that is next to
	// nothing.
	Background string `yaml:"background"`
	// Prefetch converts everything below the root in the background, at the
	// start, and what has come since every ten minutes.
	Prefetch bool `yaml:"prefetch"`
	// NoBest leaves variants as they were made for the first visitor. Otherwise
	// they are made again, smaller, when there is nothing else to do.
	NoBest bool `yaml:"no_best"`

	// Store is the folder for what was converted. Default: one for the root
	// below the user's cache folder.
	Store string `yaml:"store"`
	// StoreSize is the most that the folder may hold. Default 10GiB.
	StoreSize bytesize.Size `yaml:"store_size"`
	// Shared is a bucket that several machines keep variants in:
	// s3://host/bucket/prefix. Its keys are found as other S3 programs find them:
	// in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the profile AWS_PROFILE of
	// ~/.aws, or from the role of this machine, container or pod.
	Shared string `yaml:"shared"`

	// MaxMegapixels and MaxSize are the largest images that are converted;
	// larger ones are served as they are. Default 50 and 25MiB.
	MaxMegapixels float64       `yaml:"max_megapixels"`
	MaxSize       bytesize.Size `yaml:"max_size"`

	// Params are the sizes that requests may ask for.
	Params params.Options `yaml:"params"`
	// Remote takes the originals from another host instead of a folder.
	Remote *remote.Options `yaml:"remote"`
}

// UnmarshalText lets a route say "images: on".
func (o *Options) UnmarshalText(text []byte) error {
	if s := string(text); s != "on" && s != "true" {
		return fmt.Errorf("%q is neither \"on\" nor a map of options, like {quality: 75}", s)
	}
	*o = Options{}
	return nil
}

// The defaults of Options.
const (
	defaultNearLossless = 60
	defaultWait         = 250 * time.Millisecond
)

// known are the extensions that may be converted, and whether they are without
// being asked for.
var known = map[string]bool{"jpg": true, "jpeg": true, "png": true, "gif": true, "webp": true, "bmp": true, "tiff": false, "tif": false, "avif": false}

func (o Options) withDefaults() Options {
	if len(o.Formats) == 0 {
		o.Formats = []string{string(codec.AVIF), string(codec.WebP)}
	}
	if len(o.Extensions) == 0 {
		for e, on := range known {
			if on {
				o.Extensions = append(o.Extensions, e)
			}
		}
	}
	set(&o.Quality, convert.DefaultQuality)
	set(&o.NearLossless, defaultNearLossless)
	set(&o.Wait, defaultWait)
	set(&o.StoreSize, disk.DefaultLimit)
	set(&o.MaxMegapixels, header.DefaultMegapixels)
	set(&o.MaxSize, remote.DefaultLargest)
	return o
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

const (
	leastMemory = 512 << 20
	mostMemory  = 2 << 30
	// memoryShare of the machine's memory is what conversions get by default:
	// one part of so many.
	memoryShare = 4
)

// memory is the budget of conversions in bytes.
func (o Options) memory() int64 {
	if o.Memory > 0 {
		return int64(o.Memory)
	}
	return min(max(gogc.Memory()/memoryShare, leastMemory), mostMemory)
}

func (o Options) limits() header.Limits { return header.Limits{Megapixels: o.MaxMegapixels} }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	for _, f := range o.Formats {
		if f != string(codec.WebP) && f != string(codec.AVIF) {
			faults["formats"] = fmt.Errorf("%q is not a format that can be made: webp, avif", f)
		}
	}
	for _, e := range o.Extensions {
		if _, ok := known[strings.ToLower(strings.TrimPrefix(e, "."))]; !ok {
			faults["extensions"] = fmt.Errorf("images named %q cannot be converted: jpg, jpeg, png, gif, webp, bmp, tiff, tif, avif", e)
		}
	}
	if o.Quality < 0 || o.Quality > 100 {
		faults["quality"] = errors.New("quality goes from 1 to 100")
	}
	if o.NearLossless < 0 || o.NearLossless > 100 {
		faults["near_lossless"] = errors.New("near_lossless goes from 1 to 100, which is off")
	}
	if !slices.Contains([]string{"", "auto", "tools", "embedded"}, o.Engine) {
		faults["engine"] = fmt.Errorf("%q is not an engine: auto, tools or embedded", o.Engine)
	}
	if !slices.Contains([]string{"", "gps"}, o.StripOriginals) {
		faults["strip_originals"] = fmt.Errorf("%q cannot be taken out: gps", o.StripOriginals)
	}
	if !slices.Contains([]string{"", "sanitize", "download"}, o.SVG) {
		faults["svg"] = fmt.Errorf("%q is neither sanitize nor download", o.SVG)
	}
	if !slices.Contains([]string{"", "idle", "normal"}, o.Background) {
		faults["background"] = fmt.Errorf("%q is neither idle nor normal", o.Background)
	}
	if o.MaxMegapixels < 0 {
		faults["max_megapixels"] = errors.New("max_megapixels cannot be negative")
	}
	if o.Wait > maxWait {
		faults["wait"] = fmt.Errorf("nobody waits %s for an image: at most %s", o.Wait, maxWait)
	}
	if o.Workers > maxWorkers {
		faults["workers"] = fmt.Errorf("%d conversions at once are more than any machine does: at most %d", o.Workers, maxWorkers)
	}
	if o.Memory != 0 && o.Memory < minMemory {
		faults["memory"] = fmt.Errorf("memory of %s is too little for one image: at least %s", o.Memory, bytesize.Size(minMemory))
	}
	return faults
}

const (
	// maxWait keeps a visitor's connection below the usual write timeouts.
	maxWait = 30 * time.Second
	// maxWorkers is a bound for mistakes.
	maxWorkers = 256
	// minMemory is what a megapixel or two takes with the smallest encoder.
	minMemory = 32 << 20
)
