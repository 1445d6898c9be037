package azureconn

import (
	"strings"
	"testing"
	"time"
)

// C92: what a signature does not allow is known before anything is asked of storage.
func TestASignatureSaysWhatItLacks(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	const good = "sv=2024-11-04&ss=qt&srt=sco&sp=rwdlacup&se=2028-01-01T00:00:00Z&sig=S3cret"
	for in, want := range map[string][]string{
		good: nil,
		strings.Replace(good, "rwdlacup", "rdlaup", 1):                               {"c or w"},
		strings.Replace(good, "rwdlacup", "wdlacu", 1):                               {"permission r", "permission p"},
		strings.Replace(good, "rwdlacup", "rwdlcup", 1):                              {"nothing can be published"},
		strings.Replace(good, "rwdlacup", "rl", 1):                                   {"permission a", "permission u", "permission p", "permission d", "c or w"},
		strings.Replace(good, "ss=qt", "ss=b", 1):                                    {"q, t"},
		strings.Replace(good, "srt=sco", "srt=sc", 1):                                {"lacks o"},
		strings.Replace(good, "srt=sco", "srt=co", 1):                                {"partly: the shared access signature lacks s among its resource types (srt): queues and tables can't be listed"},
		strings.Replace(good, "srt=sco", "srt=c", 1):                                 {"lacks o", "partly: the shared access signature lacks s"},
		strings.Replace(good, "rwdlacup", "rwdacup", 1):                              {"partly: the shared access signature lacks the permission l"},
		strings.Replace(good, "00:00:00Z", "01:00%2B01:00", 1):                       nil,
		strings.Replace(good, "2028-01-01T00:00:00Z", "2027-01-01T00:30%2B01:00", 1): {"ended at 2026-12-31T23:30:00Z"},
		strings.Replace(good, "2028", "2026", 1):                                     {"ended at 2026-01-01"},
		strings.Replace(good, "2028-01-01", "2027-01-05", 1):                         {"warning: the shared access signature ends at 2027-01-05"},
		good + "&st=2027-06-01":                                                      {"not in force before 2027-06-01"},
		good + "&st=2026-06-01":                                                      nil,
		good + "&sip=10.0.0.1":                                                       {"warning: the shared access signature is for requests from certain"},
		"sv=1&sr=q&sp=rup&se=2028-01-01&sig=S3cret":                                  {"one queue or one table only"},
		"sv=1&tn=t&si=policy&sig=S3cret":                                             {"one queue or one table only"},
		strings.Replace(good, "&se=2028-01-01T00:00:00Z", "", 1):                     {"no end"},
		good + "&spr=https":                                                          nil,
	} {
		cfg, err := Parse("AccountName=acct;SharedAccessSignature=" + in)
		if err != nil {
			t.Fatal(err)
		}
		got := cfg.SASFaults(now)
		if len(got) != len(want) {
			t.Errorf("%s: %+v, want %d", in, got, len(want))
			continue
		}
		for i, f := range got {
			text := f.Text
			if f.Warning {
				text = "warning: " + text
			}
			if f.Partly {
				text = "partly: " + text
			}
			if !strings.Contains(text, want[i]) || f.Cure == "" || strings.Contains(f.Text+f.Cure, "S3cret") || f.Warning != strings.HasPrefix(want[i], "warning") {
				t.Errorf("%s: %+v, want %q", in, f, want[i])
			}
		}
	}
	cfg, err := Parse("QueueEndpoint=http://h/a;TableEndpoint=http://h/a;SharedAccessSignature=" + good + "&spr=https")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.SASFaults(now); len(got) != 1 || !strings.Contains(got[0].Text, "https only") {
		t.Errorf("http with spr=https: %+v", got)
	}
	if cfg, err := Parse("UseDevelopmentStorage=true"); err != nil || cfg.SASFaults(now) != nil {
		t.Errorf("a key has faults of a signature: %v", err)
	}
}
