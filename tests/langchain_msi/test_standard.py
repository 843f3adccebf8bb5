"""LangChain's own suites for chat models, on the embedded model; nothing is overridden."""

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from langchain_msi import ChatMSI


class TestUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self):
        return ChatMSI

    @property
    def has_tool_calling(self):
        return False  # the embedded model's chat template has no tools

    @property
    def chat_model_params(self):
        return {"model": "embedded"}


@pytest.mark.real_model
@pytest.mark.usefixtures("home")
class TestIntegration(ChatModelIntegrationTests):
    @property
    def chat_model_class(self):
        return ChatMSI

    @property
    def has_tool_calling(self):
        return False  # the embedded model's chat template has no tools

    @property
    def chat_model_params(self):
        """Short answers. A model of this size repeats itself to the end of its budget if let."""
        return {"k": 1, "max_tokens": 96, "repetition_penalty": 1.2, "stop": ["\n"]}

    @property
    def model_override_value(self):
        return "embedded"

    @property
    def supports_json_mode(self):
        return True
