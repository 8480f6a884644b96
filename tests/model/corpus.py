"""Secrets as people write them, and what looks like one and is none.

All of it is made up; and it is put together here, so that those who search repositories for secrets
find none in this one.
"""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid

_RANDOM = random.Random(17)
_LETTERS = string.ascii_letters
_BASE62 = _LETTERS + string.digits
_HEX = "0123456789abcdef"


def some(length: int, alphabet: str = _BASE62) -> str:
    """Random characters; of several kinds, where the alphabet has them."""
    while True:
        text = "".join(_RANDOM.choices(alphabet, k=length))
        if (
            alphabet != _BASE62
            or length < 12
            or (any(map(str.isdigit, text)) and not text.isupper())
        ):
            return text


def jwt() -> str:
    def part(text: str) -> str:
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    claims = '{"sub":"1234567890","name":"ada","iat":1516239022}'
    return ".".join((part('{"alg":"HS256","typ":"JWT"}'), part(claims), some(43)))


def private_key(kind: str = "RSA ") -> str:
    lines = "\n".join(some(64) for _ in range(6))
    return f"-----BEGIN {kind}PRIVATE KEY-----\n{lines}\n-----END {kind}PRIVATE KEY-----"


#: Kind -> a secret that is known by its form, wherever it stands.
FORMS: dict[str, str] = {
    "AWS key id": "AKIA" + some(16, string.ascii_uppercase + "234567"),
    "AWS temporary key id": "ASIA" + some(16, string.ascii_uppercase + "234567"),
    "Hugging Face": "hf_" + some(34),
    "Hugging Face, letters": "hf_" + some(34, _LETTERS),
    "Hugging Face organisation": "api_org_" + some(34, _LETTERS),
    "GitHub personal": "ghp_" + some(36),
    "GitHub app": "ghs_" + some(36),
    "GitHub fine-grained": "github_pat_" + some(82),
    "GitLab personal": "glpat-" + some(20),
    "GitLab deploy": "gldt-" + some(20),
    "GitLab runner": "glrt-" + some(20),
    "OpenAI": "sk-proj-" + some(48),
    "Anthropic": "sk-ant-api03-" + some(93) + "AA",
    "Slack bot": "xoxb-" + some(12, string.digits) + "-" + some(12, string.digits) + "-" + some(24),
    "Slack webhook": "https://hooks.slack.com/services/T"
    + some(8)
    + "/B"
    + some(8)
    + "/"
    + some(24),
    "Google": "AIza" + some(35),
    "JWT": jwt(),
    "private key": private_key(),
    "OpenSSH key": private_key("OPENSSH "),
    "PKCS8 key": private_key(""),
    "Stripe": "sk_live_" + some(24),
    "SendGrid": "SG." + some(22) + "." + some(43),
    "npm": "npm_" + some(36),
    "PyPI": "pypi-AgEIcHlwaS5vcmc" + some(60),
    "DigitalOcean": "dop_v1_" + some(64, _HEX),
    "Databricks": "dapi" + some(32, _HEX),
    "Vault": "hvs." + some(95),
    "age": "AGE-SECRET-KEY-1" + some(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "Azure AD": some(3) + "8Q~" + some(34),
    "Grafana": "glsa_" + some(32) + "_" + some(8, _HEX),
    "Prefect": "pnu_" + some(36),
    "Pulumi": "pul-" + some(40, _HEX),
    "NVIDIA": "nvapi-" + some(64),
    "Groq": "gsk_" + some(52),
    "Replicate": "r8_" + some(37),
    "OpenShift": "sha256~" + some(43),
    "Postman": "PMAK-" + some(24, _HEX) + "-" + some(34, _HEX),
    "OpenRouter": "sk-or-v1-" + some(64, _HEX),
    "bearer": "Bearer " + some(30),
    "ODBC": f"Server=db;Uid=ada;Pwd={some(10)};",
    "W&B, new": "wandb_v1_" + some(77),
    "URL of a database": f"postgresql://ada:{some(10)}@db.example.org/x",
    "URL, encoded": f"https://ada:{some(6)}%40{some(3)}@example.org/x.git",
    "S3, signed": "https://b.s3.amazonaws.com/k?X-Amz-Signature=" + some(64, _HEX),
    "Azure, signed": "https://a.blob.core.windows.net/c?sv=2022&sig=" + some(43) + "%3D",
}

#: Variables of an environment, with a value that is nothing special.
VARIABLES = [
    *("DB_PASS", "MYSQL_PWD", "WANDB_KEY", "WANDB_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
    *(
        "PGPASSWORD",
        "MY_SECRET",
        "APP_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "TOKEN",
    ),
    *("OPENAI_API_KEY", "COMET_API_KEY", "KAGGLE_KEY", "SLURM_JWT", "SMTP_PASS", "REDIS_PASSWORD"),
    *(
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "CLIENT_SECRET",
        "SECRET_KEY",
        "my_passphrase",
        "DB_PASSWORD_PROD",
    ),
    *("ENCRYPTION_KEY", "NGC_API_KEY", "PASS", "ADMIN_PASS", "DJANGO_SECRET_KEY", "VAULT_TOKEN"),
]

#: Command lines, and which of their words is a secret.
COMMAND_LINES: list[tuple[list[str], int]] = [
    (["x", "--token", some(8)], 2),
    (["x", "--token", "hunter2"], 2),
    (["x", f"--token={some(8)}"], 1),
    (["x", "--password=hunter2"], 1),
    (["x", "--db-pass", "hunter2"], 2),
    (["x", "--wandb.api-key", "0123"], 2),
    (["x", "--wandbApiKey=0123"], 1),
    (["x", "--client-secret", "hunter2"], 2),
    (["x", "--secret", "hunter2"], 2),
    (["x", "+logger.api_key=0123"], 1),
    (["bash", "-c", "export DB_PASS=hunter2; python train.py"], 2),
    (["bash", "-c", "DB_PASS='hunter 2' python train.py"], 2),
    (["bash", "-c", "python train.py --token hunter2"], 2),
    (["bash", "-c", f"wandb login {some(40, _HEX)} && python train.py"], 2),
    (["env", "MYSQL_PWD=hunter2", "x"], 1),
    (["mysql", "-u", "ada", "-phunter2", "db"], 3),
    (["sshpass", "-p", "hunter2", "ssh", "x"], 2),
    (["curl", "-u", "ada:hunter2", "https://example.org"], 2),
    (["curl", "-H", f"Authorization: Bearer {some(20)}", "https://example.org"], 2),
    (["curl", "--header", f"X-Api-Key: {some(20)}"], 2),
    (["docker", "login", "-u", "ada", "-p", "hunter2", "example.org"], 5),
    (["bash", "-c", "setenv DB_PASS hunter2; python train.py"], 2),
    (["fish", "-c", "set -gx DB_PASS hunter2; python train.py"], 2),
    (["x", f"https://example.org/?api_key={some(12)}&x=1"], 1),
]

#: Lines of a program's source or of a file of settings, and the secret in each.
LINES: list[tuple[str, str]] = [
    (line.replace("@", secret), secret)
    for line, secret in (
        ('API_KEY = "@"', some(20)),
        ('API_KEY="@"', "hunter2"),
        ("api_key: '@'", some(20)),
        ('    "api_key": "@",', some(20)),
        ('api_key: str = "@"', some(20)),
        ('os.environ["WANDB_API_KEY"] = "@"', some(40, _HEX)),
        ('os.environ.setdefault("HF_TOKEN", "@")', some(20)),
        ('client = Client(token="@")', some(20)),
        ('wandb.login(key="@")', some(40, _HEX)),
        ('if password == "@":', "hunter2"),
        ("const apiKey = `@`;", some(20)),
        ("export DB_PASS=@", "hunter2"),
        ("DB_PASS=@", "hunter2"),
        ("password: @", "hunter2"),
        ("ENV DB_PASS @", "hunter2"),
        ("password: @  # of the database", "hunter2"),
        ('cmd = ["x", "--token", "@"]', some(20)),
        ('headers = {"Authorization": "Bearer @"}', some(30)),
        ('aws_secret_access_key = "@"', some(40)),
        ('key = "@"', some(40)),
        ("password = @", "hunter2"),
        ("  aws_secret_access_key = @  ; of the bucket", some(40)),
        ("db.password = @ # of the database", "hunter2"),
        ('password = """@"""', "hunter2"),
        ("password = ('@')", "hunter2"),
        ('parser.add_argument("--token", type=str, default="@")', "hunter2"),
        ('click.option("--db-pass", help="Yours.", default="@")', "hunter2"),
        ('os.environ.get("DB_PASS", default="@")', "hunter2"),
        ('os.environ.get("DB_PASS") or "@"', "hunter2"),
        ('password: str = field(default="@")', "hunter2"),
    )
]

_DIGEST = hashlib.sha256(b"x").hexdigest()

#: What is everyday in a training, as values of any name.
LOOK_ALIKES = [
    hashlib.sha1(b"x").hexdigest(),
    _DIGEST,
    f"sha256:{_DIGEST}",
    hashlib.md5(b"x").hexdigest(),
    str(uuid.UUID(int=_RANDOM.getrandbits(128))),
    *("3e-4", "0.1", "1e-05", "50257", "2026-03-01T12:00:00Z", "4h", "bf16-mixed"),
    *("/scratch/ada/data/train.bin", "./conf/model.yaml", "~/.ssh/id_ed25519", "s3://bucket/ckpt"),
    *("hf://datasets/ada/corpus", "https://example.org/a@b", "http://localhost:8000/x?y=1"),
    *("resnet50-imagenet-lr0.1-bs256-20260301", "sk-image-segmentation-baseline-augmented-v2"),
    *("Qwen2-VL-72B-Instruct-GPTQ-Int4", "meta-llama/Llama-3.1-8B-Instruct", "hf_hub", "sk-learn"),
    *(
        "MyVeryLongExperimentNameOfMarch2026",
        "LlamaForCausalLMWithValueHeadV2",
        "train_dataset_2024",
    ),
    *(
        "git@github.com:ada/x",
        "$HF_TOKEN",
        "${WANDB_API_KEY}",
        "{{ params.token }}",
        "<pad>",
        "[MASK]",
    ),
    "registry.example.org/team/image@sha256:" + _DIGEST,
    "nvcr.io/nvidia/pytorch:24.05-py3",
    "bearer of the-very-long-standing-tradition",
    "the quick brown fox jumps over the lazy dog, and asks it for its password",
    base64.b64encode(b'{"lr": 0.1}').decode(),
    "AKIAIOSFODNN7" + "EXAMPLE",
    "eyes.only.example",
    "postgresql://db.example.org:5432/x",
    "task_" + _DIGEST[:32],
    "TASK" + _DIGEST[:32],
]

#: Command lines without a secret.
PLAIN_LINES = [
    ["--pad_token", "<pad>", "--max-tokens=512", "--use_auth_token"],
    ["--api-key-file=/home/ada/key", "--private-key", "~/.ssh/id_ed25519", "--tokenizer", "gpt2"],
    ["--password={{ params.password }}", "--hub_token=", "--sort-key", "length", "--key", "image"],
    ["+wandb.api_key=${oc.env:WANDB_API_KEY}", "--hub_token", "$HF_TOKEN", "--token=$HF_TOKEN"],
    ["--initializer_token", "toy", "--placeholder_token", "<cat>", "--eos-token", "</s>"],
    ["-p", "8080", "-pfp16", "-p", "gpu", "-u", "train.py"],
    ["bash", "-c", 'python train.py --token "$HF_TOKEN" --key=image && echo $DB_PASS'],
    ["bash", "-c", "HF_TOKEN=$(cat ~/.token) python train.py"],
    ["--api-key", "EMPTY", "--password=changeme", "--token", "<your token>", "--num-pass", "2"],
    ["--first-pass", "coarse", "--compass", "north", "--bypass=layer3", "--secret_ratio=0.5"],
    ["secret", "token", "password", "key"],
    ["docker", "run", "-p", "8080:8080", "x"],
    ["--token-type-embeddings", "2", "--keyframes", "a,b", "--monkey", "see", "--author", "ada"],
]

#: Lines of programs and settings without a secret.
PLAIN_SOURCE = [
    "token = tokenizer.pad_token",
    "password = getpass.getpass()",
    'api_key = os.environ["API_KEY"]',
    "def login(user, password=None, token=token, api_key=settings.api_key):",
    'tokenizer.add_special_tokens({"pad_token": "[PAD]", "eos_token": "</s>"})',
    'for key, value in batch.items(): out[key] = value.to("cuda")',
    "assert key == 'image'",
    'parser.add_argument("--token", help="Your token")',
    'raise ValueError("no password given")',
    "next_token = logits.argmax(-1)",
    f'commit = "{hashlib.sha1(b"y").hexdigest()}"',
    f"key_hash: {_DIGEST}",
    "secret: ${SECRET}",
    "password: ''",
    "api_key: <your key>",
    "token_embeddings: 768",
    "# The password: it is asked for.",
    'print(f"token: {token}")',
    "keys = ['a', 'b']",
    'parser.add_argument("--token", help="Your token", default=None)',
    'parser.add_argument("--key", default="image")',
    'parser.add_argument("--token"), parser.add_argument("--x", default="image")',
    'token = args.token or "<pad>"',
]
