package azureconn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

const (
	testKey = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA==" // ends in '=', as real ones do
	testSAS = "sv=2024-11-04&ss=qt&srt=sco&sp=rwdlacup&se=2027-03-01T12:00:00Z&sig=a%2Fb%2Bc%3D"
)

func TestParse(t *testing.T) {
	const (
		azQueue, azTable   = "https://acct.queue.core.windows.net", "https://acct.table.core.windows.net"
		devQueue, devTable = "http://127.0.0.1:10001/devstoreaccount1", "http://127.0.0.1:10002/devstoreaccount1"
	)
	tests := []struct {
		name, in, queue, table, account string
		credential                      Credential
		secret                          string
	}{
		{"portal, key", "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + testKey + ";EndpointSuffix=core.windows.net",
			azQueue, azTable, "acct", SharedKey, testKey},
		{"no protocol and no suffix", "AccountName=acct;AccountKey=" + testKey, azQueue, azTable, "acct", SharedKey, testKey},
		{"http", "DefaultEndpointsProtocol=HTTP;AccountName=acct;AccountKey=" + testKey,
			"http://acct.queue.core.windows.net", "http://acct.table.core.windows.net", "acct", SharedKey, testKey},
		{"another cloud", "AccountName=acct;AccountKey=" + testKey + ";EndpointSuffix=core.chinacloudapi.cn",
			"https://acct.queue.core.chinacloudapi.cn", "https://acct.table.core.chinacloudapi.cn", "acct", SharedKey, testKey},
		{"lower-case keys, blanks, line breaks, empty segments",
			" accountname = acct ;\n;; accountkey=" + testKey + " ;\r\n", azQueue, azTable, "acct", SharedKey, testKey},
		{"portal, SAS without account", "BlobEndpoint=https://acct.blob.core.windows.net/;QueueEndpoint=https://acct.queue.core.windows.net/;FileEndpoint=https://acct.file.core.windows.net/;TableEndpoint=https://acct.table.core.windows.net/;SharedAccessSignature=" + testSAS,
			azQueue, azTable, "", SAS, testSAS},
		{"SAS with a question mark", "AccountName=acct;SharedAccessSignature=?" + testSAS, azQueue, azTable, "acct", SAS, testSAS},
		{"emulator", "UseDevelopmentStorage=true", devQueue, devTable, "devstoreaccount1", SharedKey, emulatorKey},
		{"emulator, other case and a semicolon", "usedevelopmentstorage=True;", devQueue, devTable, "devstoreaccount1", SharedKey, emulatorKey},
		{"emulator behind a proxy address", "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite",
			"http://azurite:10001/devstoreaccount1", "http://azurite:10002/devstoreaccount1", "devstoreaccount1", SharedKey, emulatorKey},
		{"emulator behind an IPv6 proxy address", "UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://[::1]:8888/",
			"http://[::1]:10001/devstoreaccount1", "http://[::1]:10002/devstoreaccount1", "devstoreaccount1", SharedKey, emulatorKey},
		{"path style, host name", "AccountName=devstoreaccount1;AccountKey=" + testKey + ";QueueEndpoint=http://azurite:10001/devstoreaccount1;TableEndpoint=http://azurite:10002/devstoreaccount1/",
			"http://azurite:10001/devstoreaccount1", "http://azurite:10002/devstoreaccount1", "devstoreaccount1", SharedKey, testKey},
		{"path style, address and port", "AccountName=my.account;AccountKey=" + testKey + ";QueueEndpoint=http://10.0.0.5:10001/my.account",
			"http://10.0.0.5:10001/my.account", "", "my.account", SharedKey, testKey},
		{"only the emulator's queue address", "QueueEndpoint=http://azurite:10001/devstoreaccount1",
			"http://azurite:10001/devstoreaccount1", "", "devstoreaccount1", SharedKey, emulatorKey},
		{"custom domain, queue only", "AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=https://queues.example.com",
			"https://queues.example.com", "", "acct", SharedKey, testKey},
		{"custom domain, table only", "AccountName=acct;AccountKey=" + testKey + ";TableEndpoint=https://tables.example.com/",
			"", "https://tables.example.com", "acct", SharedKey, testKey},
		{"custom queue domain, table derived", "DefaultEndpointsProtocol=https;AccountName=acct;AccountKey=" + testKey + ";QueueEndpoint=https://queues.example.com",
			"https://queues.example.com", azTable, "acct", SharedKey, testKey},
		{"queue only, SAS, no account", "QueueEndpoint=https://acct.queue.core.windows.net;SharedAccessSignature=" + testSAS,
			azQueue, "", "", SAS, testSAS},
		{"secondary endpoints", "AccountName=acct;AccountKey=" + testKey + ";QueueSecondaryEndpoint=https://acct-secondary.queue.core.windows.net/",
			azQueue, azTable, "acct", SharedKey, testKey},
		{"identity", "azure:acct", azQueue, azTable, "acct", Identity, ""},
		{"identity in another cloud", "azure:acct;EndpointSuffix=core.usgovcloudapi.net",
			"https://acct.queue.core.usgovcloudapi.net", "https://acct.table.core.usgovcloudapi.net", "acct", Identity, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if got.QueueURL != tt.queue || got.TableURL != tt.table {
				t.Errorf("services %q and %q, want %q and %q", got.QueueURL, got.TableURL, tt.queue, tt.table)
			}
			if got.Account != tt.account || got.Credential != tt.credential || got.Key()+got.SAS() != tt.secret {
				t.Errorf("credential %q, %v, %q; want %q, %v, %q", got.Account, got.Credential, got.Key()+got.SAS(), tt.account, tt.credential, tt.secret)
			}
		})
	}
}

func TestParseNamesTheKeyAndTheCureAndNoSecret(t *testing.T) {
	key, sas := "AccountKey="+testKey, "SharedAccessSignature="+testSAS
	tests := []struct{ name, in, want string }{
		{"empty", " \n", "empty"},
		{"a URL", "https://acct.queue.core.windows.net/?" + testSAS, "QueueEndpoint="},
		{"only a key", testKey, "segment 1"},
		{"only a SAS", testSAS, "sv is no key"},
		{"quoted", `"AccountName=acct;` + key + `"`, "quotes"},
		{"misspelt key", "AcountName=acct;" + key, "AcountName"},
		{"no value", "AccountName=;" + key, "AccountName is empty"},
		{"a segment without =", "AccountName=acct;" + key + ";garbage", "segment 3"},
		{"twice", "AccountName=acct;accountname=other;" + key, "AccountName is there twice"},
		{"key and SAS", "AccountName=acct;" + key + ";" + sas, "AccountKey and SharedAccessSignature"},
		{"no credential", "AccountName=acct", "no credential"},
		{"no account", key, "AccountName"},
		{"key without account", key + ";QueueEndpoint=https://queues.example.com", "AccountKey needs AccountName"},
		{"SAS without account and endpoint", sas, "AccountName"},
		{"cut key", "AccountName=acct;AccountKey=" + testKey[:len(testKey)-1], "AccountKey is not base64"},
		{"cut SAS", "AccountName=acct;SharedAccessSignature=" + testSAS[:20], "no sig="},
		{"emulator and account", "UseDevelopmentStorage=true;AccountName=acct", "AccountName contradict"},
		{"emulator false", "UseDevelopmentStorage=false", "UseDevelopmentStorage"},
		{"proxy without emulator", "DevelopmentStorageProxyUri=http://azurite", "needs UseDevelopmentStorage=true"},
		{"bad protocol", "DefaultEndpointsProtocol=ftp;AccountName=acct;" + key, "DefaultEndpointsProtocol"},
		{"bad account", "AccountName=evil.example/;" + key, "AccountName has 3 to 24"},
		{"bad suffix", "AccountName=acct;EndpointSuffix=evil/?;" + key, "EndpointSuffix"},
		{"signature in an endpoint", "QueueEndpoint=https://acct.queue.core.windows.net/?" + testSAS, "QueueEndpoint has a query"},
		{"password in an endpoint", "TableEndpoint=https://u:" + testKey + "@host/;AccountName=acct;" + key, "TableEndpoint"},
		{"relative endpoint", "AccountName=acct;" + key + ";QueueEndpoint=acct.queue.core.windows.net", "QueueEndpoint is no URL"},
		{"endpoint of another scheme", "AccountName=acct;" + key + ";QueueEndpoint=ftp://host", "QueueEndpoint begins with"},
		{"identity without account", "azure:", "azure: is followed by"},
		{"identity with a key", "azure:acct;" + key, "AccountKey does not go with"},
		{"identity with a host", "azure:acct.queue.core.windows.net", "azure: is followed by"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := Parse(tt.in)
			if err == nil {
				t.Fatalf("accepted as %v", cfg)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not have %q", err, tt.want)
			}
			for _, secret := range []string{testKey[:12], "a%2Fb", "sp=rwdlacup", "garbage"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error %q has a piece of the input", err)
				}
			}
		})
	}
}

func TestConfigPrintsWithoutItsSecret(t *testing.T) {
	for _, in := range []string{"AccountName=acct;AccountKey=" + testKey, "AccountName=acct;SharedAccessSignature=" + testSAS} {
		cfg, err := Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "storage", cfg)
		text, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		type holder struct{ cfg Config } // fmt calls no methods on what it can't export
		for _, printed := range []string{
			cfg.String(), fmt.Sprintf("%v %+v %#v %s", cfg, cfg, cfg, cfg), fmt.Sprintf("%+v %#v", holder{cfg}, holder{cfg}),
			fmt.Sprintf("%+v", &cfg), log.String(), string(text),
		} {
			if strings.Contains(printed, testKey) || strings.Contains(printed, "sig=") {
				t.Errorf("secret in %s", printed)
			}
			if !strings.Contains(printed, "acct") {
				t.Errorf("nothing useful in %s", printed)
			}
		}
	}
}

func TestSASExpiry(t *testing.T) {
	tests := []struct {
		se   string
		want time.Time
	}{
		{"2027-03-01T12:00:00Z", time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)},
		{"2027-03-01T12:00Z", time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)},
		{"2027-03-01", time.Date(2027, 3, 1, 0, 0, 0, 0, time.UTC)},
		{"soon", time.Time{}},
		{"", time.Time{}},
	}
	for _, tt := range tests {
		cfg, err := Parse("AccountName=acct;SharedAccessSignature=sig=x&se=" + tt.se)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := cfg.SASExpiry(); !got.Equal(tt.want) || ok == tt.want.IsZero() {
			t.Errorf("se=%s: %v, %t; want %v", tt.se, got, ok, tt.want)
		}
	}
	cfg, err := Parse("UseDevelopmentStorage=true")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := cfg.SASExpiry(); ok {
		t.Error("a shared key has an expiry")
	}
}

func FuzzParseNeverPanicsNorQuotesALongInput(f *testing.F) {
	f.Add("AccountName=acct;AccountKey=" + testKey)
	f.Add("azure:acct;;")
	f.Add("QueueEndpoint=http://[::1]:1/a;SharedAccessSignature=?" + testSAS)
	f.Fuzz(func(t *testing.T, s string) {
		cfg, err := Parse(s)
		if err == nil && cfg.QueueURL == "" && cfg.TableURL == "" {
			t.Errorf("%q gave no address", s)
		}
		if err != nil && len(err.Error()) > 250 {
			t.Errorf("long error %q", err)
		}
	})
}
