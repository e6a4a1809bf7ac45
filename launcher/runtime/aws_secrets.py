"""A secret of AWS: of Secrets Manager, or a parameter of Systems Manager. The runtime asks with the short-lived
credentials that it has for the store."""

from __future__ import annotations

from typing import Final

from launcher.runtime.secret_faults import SecretRefused, SecretUnanswered

# what a second try changes: AWS is busy or broken
_AGAIN: Final = ("Throttling", "ThrottlingException", "TooManyRequestsException", "InternalServiceError")


def value(arn: str) -> str:
    """Raises SecretRefused, SecretUnanswered."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    _, _, service, region, *_ = arn.split(":")
    try:
        client = boto3.client(service, region_name=region)
        if service == "ssm":
            return str(client.get_parameter(Name=arn, WithDecryption=True)["Parameter"]["Value"])
        return str(client.get_secret_value(SecretId=arn)["SecretString"])
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _AGAIN:
            raise SecretUnanswered(f"AWS: {code}") from None
        raise SecretRefused(f"AWS refuses {arn}: {code}") from None
    except BotoCoreError as error:
        raise SecretUnanswered(str(error)) from None
